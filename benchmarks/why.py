"""How often `safelaunch why` finds the cause, beside what people and peers do today, over labelled logs.

    python -m benchmarks.why [--corpus DIR]… [--gpualert PYTHON] [--misses] [--json]

A corpus is a folder with labels.jsonl and cases/NNN.log. The project's own samples (tests/why/incidents) are always
scored; others are named by --corpus or by SAFELAUNCH_FAILURE_CORPUS (folders with ':' between). gpualert is asked by
the interpreter that has it (a virtual environment of its own), and left out with a word where there is none.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OWN_SAMPLES = Path(__file__).parent.parent / "tests" / "why" / "incidents"
CONFIDENT = 0.8   # issue 4: wrong and at least this sure counts as wrong-and-confident
LEAST_LETTERS = 4   # a reported line that is part of the label's must say something
GPUALERT_DEADLINE_S = 300.0


@dataclass(frozen=True)
class Case:
    """One labelled log."""

    id: str
    path: Path
    category: str
    categories: frozenset[str]
    lines: tuple[str, ...]        # texts that name the cause; () = the log has no such line
    hosts: tuple[str, ...]
    ranks: tuple[int, ...]
    actions: frozenset[str]
    difficulty: str = ""


@dataclass(frozen=True)
class Answer:
    """What somebody says of a log. Several categories: words of another taxonomy that may mean each of them."""

    categories: frozenset[str]
    confidence: float | None = None
    text: str = ""
    host: str | None = None
    rank: int | None = None
    suspects: tuple[str, ...] = ()
    action: str | None = None


@dataclass(frozen=True)
class Score:
    """How one answer compares with its label; None = the label does not say, or the answer cannot."""

    case: Case
    answer: Answer
    category: bool
    line: bool | None
    host: bool | None
    rank: bool | None
    action: bool | None
    false_alarm: bool | None
    abstained: bool
    wrong_and_confident: bool | None


Ask = Callable[[Sequence[Case]], Iterable[Answer]]


def load_corpus(folder: Path) -> tuple[Case, ...]:
    """The cases of a corpus, by id."""
    labels = [json.loads(line) for line in (folder / "labels.jsonl").read_text().splitlines() if line.strip()]
    return tuple(_make_case(folder, label) for label in sorted(labels, key=lambda label: str(label["id"])))


def _make_case(folder: Path, label: dict[str, Any]) -> Case:
    lines = [label.get("root_cause_line"), *(label.get("also_accept") or ())]
    return Case(
        label["id"], folder / "cases" / f"{label['id']}.log", label["category"],
        frozenset([label["category"], *(label.get("acceptable_categories") or ())]),
        tuple(text for text in lines if text), tuple(label.get("suspect_hosts") or ()),
        tuple(label.get("suspect_ranks") or ()),
        frozenset([label["action"], *(label.get("acceptable_actions") or ())]), label.get("difficulty") or "")


def score(case: Case, answer: Answer) -> Score:
    """An answer beside its label."""
    right = bool(answer.categories & case.categories)
    abstained = answer.categories == {"unknown"}
    healthy = case.category == "none"
    named = (answer.host, *answer.suspects)
    return Score(
        case, answer, right,
        line=None if not case.lines else any(_is_same_line(text, answer.text) for text in case.lines),
        host=None if not case.hosts else any(_is_same_host(one, other) for one in case.hosts for other in named),
        rank=None if not case.ranks else answer.rank in case.ranks,
        # To look first is what a log asks for that nothing has failed in, and that does not say that all is well.
        action=None if answer.action is None else bool({answer.action, *("none",) * (answer.action == "look")}
                                                       & case.actions),
        false_alarm=not abstained and not right if healthy else None,
        abstained=abstained,
        wrong_and_confident=None if answer.confidence is None else (
            not right and not abstained and answer.confidence >= CONFIDENT),
    )


def _is_same_line(label: str, reported: str) -> bool:
    """Whether one contains the other, spaces and letter case aside at most by spaces."""
    one, other = (" ".join(text.split()) for text in (label, reported))
    return one in other or (len(other) >= LEAST_LETTERS and other in one)


def _is_same_host(one: str, other: str | None) -> bool:
    return other is not None and (one == other or one.split(".")[0] == other.split(".")[0] != "")


# --- who is asked ---------------------------------------------------------------------------------------------------


def ask_safelaunch(cases: Sequence[Case]) -> Iterable[Answer]:
    """What `safelaunch why --json` prints, without the start of a process for each log."""
    from safelaunch.extensions.io.rulepacks import load_packs
    from safelaunch.why import rulebook
    from safelaunch.why.io.logfiles import read_logs
    from safelaunch.why.judge.engine import judge_log
    from safelaunch.why.read.scan import Compiled
    from safelaunch.why.show import verdictjson

    rules = (*rulebook.RULES, *load_packs())
    compiled = Compiled(rules)   # for all of them: it takes 50 ms, most logs 1 ms
    for case in cases:
        said = verdictjson.to_public(judge_log(read_logs([case.path], rules, compiled=compiled)))["verdict"]
        causes = [line["text"] for line in said["evidence"] if line["role"] == "cause"]
        yield Answer(frozenset([said["category"]]), said["confidence"], causes[0] if causes else "", said["host"],
                     said["rank"], tuple(said["suspects"]), said["action"])


def ask_less(cases: Sequence[Case]) -> Iterable[Answer]:
    """The first line with "Error", as people look for it in less; any such line is charitably read as every category
    but `none`, and no such line as `none`.
    """
    for case in cases:
        lines = re.split(r"[\r\n]", case.path.read_text(errors="replace"))
        found = next((line for line in lines if "Error" in line), None)
        yield Answer(frozenset(["some failure"] if found else ["none"]), None, found or "")


# gpualert's label → the categories that it may mean, read charitably.
GPUALERT_WORDS = {
    "GPU out-of-memory (CUDA OOM)": ("cuda_oom",),
    "NCCL communication error": ("network", "hang"),
    "CUDA runtime error": ("gpu_hardware", "native_crash"),
    "System out-of-memory (RAM)": ("host_oom",),
    "Segmentation fault": ("native_crash",),
    "File not found": ("config", "data", "storage", "checkpoint"),
    "Permission denied": ("storage", "config", "environment"),
    "Missing Python module": ("environment", "version_mismatch"),
    "Division by zero": ("user_code",),
    "Tensor device mismatch": ("user_code",),
    "NaN detected in loss": ("numerical",),
    "Process killed by OS (OOM)": ("host_oom",),
    "Assertion failed": ("user_code", "config"),
    "Python RuntimeError": ("user_code",),
    "Python exception (traceback)": ("user_code",),
}
_ASK_GPUALERT = """\
import json, sys
from gpualert.parse_errors import extract_traceback, get_error_confidence, parse_errors
for path, code in json.load(sys.stdin):
    text = open(path, errors="replace").read()
    said = parse_errors("", text, code)
    print(json.dumps([said.splitlines()[0] if said else "", extract_traceback(text), get_error_confidence(said)]))
"""


def ask_gpualert(python: str) -> Ask:
    """gpualert's own functions in its own interpreter; it is told the exit code, which a log alone does not hold."""
    def ask(cases: Sequence[Case]) -> Iterable[Answer]:
        asked = json.dumps([(str(case.path), int(case.category != "none")) for case in cases])
        done = subprocess.run([python, "-c", _ASK_GPUALERT], input=asked, capture_output=True, text=True, check=True,
                              timeout=GPUALERT_DEADLINE_S)
        for line in done.stdout.splitlines():
            said, traceback, sure = json.loads(line)
            words = GPUALERT_WORDS.get(said, ("unknown",)) if said else ("none",)
            yield Answer(frozenset(words), 0.9 if sure == "HIGH" else 0.5, traceback)
    return ask


# --- the table ------------------------------------------------------------------------------------------------------


def summarize(name: str, scores: Sequence[Score], took_s: float) -> dict[str, Any]:
    """One row: hits and out of how many."""
    def rate(values: Iterable[bool | None]) -> list[int]:
        said = [value for value in values if value is not None]
        return [sum(said), len(said)]

    return {
        "who": name, "cases": len(scores), "category": rate(one.category for one in scores),
        "line": rate(one.line for one in scores), "host": rate(one.host for one in scores),
        "rank": rate(one.rank for one in scores), "action": rate(one.action for one in scores),
        "false_alarms": rate(one.false_alarm for one in scores), "abstained": rate(one.abstained for one in scores),
        "wrong_and_confident": rate(one.wrong_and_confident for one in scores),
        "ms_per_log": 1e3 * took_s / max(1, len(scores)),
    }


COLUMNS = {"category": "category", "line": "root-cause line", "host": "host", "rank": "rank", "action": "action",
           "false_alarms": "false alarms", "abstained": "abstained", "wrong_and_confident": "wrong, ≥ 0.8 sure"}
# What each row cannot say: shown as a dash, not as a miss.
SILENT = {"less /Error": ("category", "host", "rank", "action", "wrong_and_confident", "abstained"),
          "gpualert 0.1.6": ("host", "rank", "action")}


def render_rows(title: str, rows: Sequence[dict[str, Any]]) -> str:
    """The rows as a Markdown table."""
    cells = [["", *COLUMNS.values(), "ms a log"]]
    for row in rows:
        silent = SILENT.get(row["who"], ())
        cells.append([row["who"], *("–" if key in silent else _share(row[key]) for key in COLUMNS),
                      f"{row['ms_per_log']:.1f}"])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [f"| {' | '.join(word.ljust(width) for word, width in zip(row, widths, strict=True))} |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(["", f"### {title}", "", *lines, ""])


def _share(rate: Sequence[int]) -> str:
    hits, of = rate
    return f"{hits}/{of} ({100 * hits / of:.0f} %)" if of else "–"


def render_misses(scores: Sequence[Score]) -> str:
    """Each answer that differs from its label, in a few lines."""
    lines = []
    for one in scores:
        wrong = [key for key in ("category", "line", "host", "rank", "action") if getattr(one, key) is False]
        wrong += ["false alarm"] * bool(one.false_alarm) + ["wrong and confident"] * bool(one.wrong_and_confident)
        if not wrong:
            continue
        said = one.answer
        sure = "" if said.confidence is None else f" ({said.confidence:.2f})"
        lines += [f"{one.case.id} {one.case.difficulty}: {', '.join(wrong)}",
                  f"    label   {'|'.join(sorted(one.case.categories))}; {'|'.join(sorted(one.case.actions))}; "
                  f"{','.join(one.case.hosts)} {','.join(map(str, one.case.ranks))}",
                  *(f"            {text[:150]}" for text in one.case.lines[:2]),
                  f"    answer  {'|'.join(sorted(said.categories))}{sure}; {said.action}; {said.host} {said.rank} "
                  f"{','.join(said.suspects)}", f"            {said.text[:150]}"]
    return "\n".join(lines)


def score_all(cases: Sequence[Case], ask: Ask) -> tuple[list[Score], float]:
    """Each case's score, and how long the answers took."""
    start_s = time.perf_counter()
    answers = list(ask(cases))
    took_s = time.perf_counter() - start_s
    return [score(case, answer) for case, answer in zip(cases, answers, strict=True)], took_s


def find_corpora(named: Sequence[Path]) -> list[Path]:
    """The folders to score, the project's own first; those that are not there are said and left out."""
    words = os.environ.get("SAFELAUNCH_FAILURE_CORPUS", "").split(":")
    wanted = [OWN_SAMPLES, *(named or [Path(word) for word in words if word])]
    if len(wanted) == 1:
        print("no failure corpus: name one by --corpus or SAFELAUNCH_FAILURE_CORPUS", file=sys.stderr)
    found = [folder for folder in wanted if (folder / "labels.jsonl").is_file()]
    for folder in wanted:
        if folder not in found:
            print(f"{folder}: no labels.jsonl there; left out", file=sys.stderr)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.why", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--corpus", type=Path, action="append", default=[], help="a folder with labels.jsonl and cases")
    parser.add_argument("--gpualert", metavar="PYTHON", default=os.environ.get("SAFELAUNCH_GPUALERT_PYTHON"),
                        help="an interpreter that has gpualert 0.1.6")
    parser.add_argument("--misses", action="store_true", help="show each answer that differs from its label")
    parser.add_argument("--json", action="store_true", dest="as_json", help="the rows, and each score, as JSON")
    options = parser.parse_args(argv)
    asked: dict[str, Ask] = {"safelaunch why": ask_safelaunch, "less /Error": ask_less}
    if options.gpualert:
        asked["gpualert 0.1.6"] = ask_gpualert(options.gpualert)
    else:
        print("gpualert is left out: --gpualert names no interpreter that has it", file=sys.stderr)
    for folder in find_corpora(options.corpus):
        cases = load_corpus(folder)
        results = {name: score_all(cases, ask) for name, ask in asked.items()}
        rows = [summarize(name, scores, took_s) for name, (scores, took_s) in results.items()]
        if options.as_json:
            print(json.dumps({"corpus": folder.name, "rows": rows, "scores": [
                _plain(one) for one in results["safelaunch why"][0]]}))
            continue
        print(render_rows(f"{folder.name}: {len(cases)} logs", rows))
        if options.misses:
            print(render_misses(results["safelaunch why"][0]))
    return 0


def _plain(one: Score) -> dict[str, Any]:
    facts = {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}
    return facts | {"case": one.case.id, "answer": {
        **dataclasses.asdict(one.answer), "categories": sorted(one.answer.categories)}}


if __name__ == "__main__":
    sys.exit(main())
