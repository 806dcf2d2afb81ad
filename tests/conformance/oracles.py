"""What a script under a fault must come to, as its own logic would want it: the words of `end:` in a collection.

    completed | failed | stopped     the run's end
    unended         it goes on from job to job, and the suite ends it
    steps N         a training of N steps was done: each step was printed, the last checkpoint is there
    resumed         a later attempt went on from a checkpoint, and did not begin anew
    has PATH        a file is there (a pattern); `lacks PATH`: it is not
    line REGEX      the output holds such a line; `no line REGEX`: none does
    attempts A..B   so many attempts were made
    jobs STATE      another job of the user (a child of the script) has this state; `no jobs`: there is none
    said REGEX      `submit` said so
    refused REGEX   `submit` refused it, in such words, with line and exit code 2

Always: nothing was printed by a second writer (programs/train.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tests.conformance.observe import Observed

Judge = Callable[[Observed, str], str | None]


def judge(seen: Observed) -> list[str]:
    """What is not as the script's own logic wants it."""
    wanted = seen.side.case.end
    found = ["it did not end in time"] if seen.is_late and "unended" not in wanted else []
    if not any(one.startswith("refused") for one in wanted) and seen.submit_code:
        return [f"submit refused it: {seen.said.strip()[-400:]}"]
    found += [text for text in (_one(seen, phrase) for phrase in wanted) if text]
    if any("SECOND WRITER" in line for line in seen.output):
        found.append("two trainings wrote at once")
    return found


def _one(seen: Observed, phrase: str) -> str | None:
    for word, judged in TABLE.items():
        if phrase == word or phrase.startswith(word + " "):
            return judged(seen, phrase[len(word) + 1:])
    raise ValueError(f"{seen.side.case.name}: end: {phrase}: no such word")


def _ended(how: str) -> Judge:
    def judged(seen: Observed, rest: str) -> str | None:
        ends = [state.ended.how if state.ended else "no end" for state in seen.runs]
        fits = ends and all(one == how or (how == "failed" and one == "gave_up") for one in ends)
        return None if fits else f"{how} was wanted, the end was {ends}: {_whys(seen)}"
    return judged


def _whys(seen: Observed) -> str:
    return "; ".join(state.ended.why for state in seen.runs if state.ended)[:300]


def _steps(seen: Observed, rest: str) -> str | None:
    last = int(rest)
    printed = {int(step) for line in seen.output for step in re.findall(rf"iteration (\d+)/{last}\b", line)}
    missing = sorted(set(range(1, last + 1)) - printed)
    if missing:
        return f"steps that nobody made: {missing[:10]}"
    if not any(name.endswith(f"step_{last}.json") for name in seen.files):
        return f"no checkpoint of step {last}"
    return None


def _resumed(seen: Observed, rest: str) -> str | None:
    starts = [int(step) for line in seen.output for step in re.findall(r"^starts at (\d+)", line)]
    return None if max(starts, default=0) > 0 else f"no attempt went on from a checkpoint: starts {starts}"


def _has(seen: Observed, pattern: str) -> str | None:
    return None if any(re.fullmatch(pattern, name) for name in seen.files) else f"no file {pattern}"


def _lacks(seen: Observed, pattern: str) -> str | None:
    return f"a file {pattern}" if any(re.fullmatch(pattern, name) for name in seen.files) else None


def _line(seen: Observed, pattern: str) -> str | None:
    return None if any(re.search(pattern, line) for line in seen.output) else f"no line {pattern}"


def _no_line(seen: Observed, pattern: str) -> str | None:
    return next((f"the line {line!r}" for line in seen.output if re.search(pattern, line)), None)


def _attempts(seen: Observed, rest: str) -> str | None:
    first, _, last = rest.partition("..")
    count = sum(len(state.attempts) for state in seen.runs)
    return None if int(first) <= count <= int(last or first) else f"{count} attempts, {rest} were wanted"


def _others(seen: Observed) -> Iterator[str]:
    own = {attempt.job for state in seen.runs for attempt in state.attempts}
    for job in seen.jobs:
        if job["JobId"] not in own and not job["Command"].endswith("/job.sbatch"):
            yield job["JobState"]


def _jobs(seen: Observed, rest: str) -> str | None:
    states = list(_others(seen))
    return None if states and set(states) == {rest} else f"the script's other jobs: {states}, wanted {rest}"


def _no_jobs(seen: Observed, rest: str) -> str | None:
    states = list(_others(seen))
    return f"the script's other jobs: {states}" if states else None


def _said(seen: Observed, pattern: str) -> str | None:
    return None if re.search(pattern, seen.said) else f"submit did not say {pattern}: {seen.said[-300:]!r}"


def _refused(seen: Observed, pattern: str) -> str | None:
    if seen.submit_code != 2:
        return f"not refused: exit code {seen.submit_code}"
    return _said(seen, pattern)


TABLE: dict[str, Judge] = {
    "completed": _ended("completed"), "failed": _ended("failed"), "stopped": _ended("stopped"), "steps": _steps,
    "resumed": _resumed, "has": _has, "lacks": _lacks, "line": _line, "no line": _no_line, "attempts": _attempts,
    "unended": lambda seen, rest: None if seen.is_late else "it has ended",
    "jobs": _jobs, "no jobs": _no_jobs, "said": _said, "refused": _refused,
}
