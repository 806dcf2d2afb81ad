"""Text → verdict, without a file: the reader's own parts over lines in memory.

`COMPILED` is made once for all tests of a process: to make the rules ready takes 50 ms, most logs of tests take 1 ms.
"""

from __future__ import annotations

from safelaunch.why import loglines
from safelaunch.why.findings import CLOCK_ORDER, Line, Log, OutsideEvidence
from safelaunch.why.judge.engine import NOTHING_KNOWN, judge_log
from safelaunch.why.read.prefilter import Shapes
from safelaunch.why.read.scan import Compiled, Scanner
from safelaunch.why.rulebook import RULES
from safelaunch.why.verdict import Verdict

COMPILED = Compiled(RULES)


def read_text(*texts: str, clock: str = CLOCK_ORDER) -> Log:
    """The log of some files' texts, as far as the judge needs it."""
    findings, progress, last = [], [], []
    counts: dict[str, int] = {}
    for file, text in enumerate(texts):
        block = text.encode() if text.endswith("\n") else text.encode() + b"\n"
        scanner = Scanner(COMPILED, file, Shapes(COMPILED.literals, words=COMPILED.words))
        scanner.feed(block, 0, 1)
        part = scanner.finish()
        findings += part.findings
        progress += part.recent
        for rule, count in part.counts.items():
            counts[rule] = counts.get(rule, 0) + count
        offset = 0
        lines = []
        for number, line in enumerate(block.split(b"\n"), 1):
            if line.strip():
                parsed = loglines.parse(line)
                lines.append(Line(file, offset, number, loglines.text(parsed.payload), parsed.host, parsed.rank,
                                  parsed.t, loglines.level_of(line, parsed.payload)))
            offset += len(line) + 1
        last += lines[-40:]
    return Log(tuple(f"{number}.log" for number in range(len(texts))), tuple(findings), tuple(progress), tuple(last),
               counts, clock=clock)


def judge_text(*texts: str, evidence: OutsideEvidence = NOTHING_KNOWN, clock: str = CLOCK_ORDER) -> Verdict:
    """The verdict on some files' texts."""
    return judge_log(read_text(*texts, clock=clock), evidence)
