"""The verdict on what `why` is asked about: of `why` itself, and of `logs --first-error`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from safelaunch.base.endings import GOOD_ENDS
from safelaunch.errors import UsageError
from safelaunch.extensions.io.rulepacks import load_packs
from safelaunch.hangs.present import judge_living
from safelaunch.verbs.common import talk
from safelaunch.verbs.why.whysubject import Subject
from safelaunch.why import rulebook
from safelaunch.why.categories import TABLE
from safelaunch.why.causes.category import POLICY_WORDS
from safelaunch.why.findings import Log
from safelaunch.why.io import logfiles
from safelaunch.why.io.linenumbers import number_verdict
from safelaunch.why.judge.engine import is_by_rule, judge_log
from safelaunch.why.read.globalranks import to_global
from safelaunch.why.verdict import Verdict

TO_GO_BACK = "nothing is ended for it (on_nan); to go back, stop the run and submit it with resume.step before it began"
SURE_END = 0.9   # the exit code 0 of all tasks
FIRST_T = 1e9          # an older stamp has no date
COPIED_S = 15 * 3600   # a stamp so much older than the file is no matter of zones: the file is a copy


def then(verdict: Verdict, subject: Subject) -> str:
    """The policy's answer to such a failure: of the run, else the default; "" = it is no failure."""
    row = TABLE.get(verdict.category, TABLE["unknown"])
    return subject.policy[verdict.category].then if row.then and verdict.category in subject.policy else row.then


def follows(verdict: Verdict, subject: Subject) -> str:
    """What followed by the run's policy, or its row while the attempt goes on; "" for a log without a run."""
    row, known = subject.policy.get(verdict.category), did_follow(verdict, subject)
    if known or row is None:
        return known
    if subject.is_of_present and verdict.action == "none":
        return "nothing yet"
    if subject.is_of_present and verdict.category == "numerical" and subject.run is not None:
        return TO_GO_BACK if subject.run.plan.on_nan in ("report", None) else f"on_nan: {subject.run.plan.on_nan}"
    when = "nothing yet; once the attempt has ended: " if subject.is_of_present else ""
    return f"{when}{POLICY_WORDS[row.then]} (restart.policy.{row.category}: {row.text})"


def did_follow(verdict: Verdict, subject: Subject) -> str:
    """What followed by its journal; of an exit code 0 that is not all, what is left to do."""
    ended = subject.attempt.ended if subject.attempt is not None else None
    is_doubtful = ended in GOOD_ENDS and verdict.category in TABLE and verdict.category != "none"
    return f"to do: {TABLE[verdict.category].to_do}" if is_doubtful else subject.follows


def judge_subject(subject: Subject) -> tuple[Log, Verdict]:
    """What the logs of a subject say, and the verdict on it."""
    log = _read(subject.paths)
    if subject.layout is not None:
        log = to_global(log, *subject.layout)
    found = judge_log(log, subject.evidence)
    if subject.run is not None and found.category != "none" and not is_by_rule(found):
        from safelaunch.verbs.why import whygood  # where a rule names the cause, good logs say no more

        if good := whygood.read(subject.run, subject.attempt):
            found = judge_log(log, replace(subject.evidence, good=good))
    if subject.present is not None and subject.is_of_present:
        found = judge_living(found, subject.present, talk.span, talk.moment_now)
    is_cut_off = subject.is_lost and subject.attempt is not None and subject.attempt.ended is None
    if is_cut_off and found.category == "none" and found.confidence < SURE_END:   # no word of an end is no health
        found = replace(found, category="unknown", confidence=0.3, action="look",
                        summary="its job is over, and nobody has written down how it ended")
    if found.category == "none":
        from safelaunch.verbs.why import whyearly  # logs of failures, which are most, need none of it

        found = whyearly.doubt(found, subject)
        found = replace(found, notes=(*found.notes, tell_age(log, _written_t(subject.paths), time.time())))
    return log, number_verdict(of_nothing(found, log) if subject.is_open and not subject.is_of_present else found)


def tell_age(log: Log, written_t: float | None, now_t: float) -> str:
    """How old the last line is: by when its file was last written to, but by its own stamp in a pipe, or in a copy."""
    if not log.files:
        return "there is no log yet"
    said_t = max((line.t for line in log.last if line.t is not None and line.t > FIRST_T), default=None)
    if said_t is not None and (written_t is None or written_t - said_t > COPIED_S):
        return f"its last line is {talk.span(now_t - said_t)} old, by its own time stamp"
    if written_t is None:
        return "how old its last line is cannot be told: it came through a pipe, and has no time stamp"
    return f"the log was last written to {talk.span(max(0.0, now_t - written_t))} ago"


def _written_t(paths: Sequence[Path]) -> float | None:
    """When the newest of the files was last written to; None = they are no files."""
    return max((path.stat().st_mtime for path in paths if path.is_file()), default=None)


def of_nothing(verdict: Verdict, log: Log) -> Verdict:
    """The same, but an empty log is no sign of health."""
    if log.size_bytes or verdict.category != "none":
        return verdict
    said = "there is no log" if not log.files else "the log is empty: nothing was written, or it was written elsewhere"
    return replace(verdict, category="unknown", summary=said, confidence=0.1, action="restart")


def _read(paths: Sequence[Path]) -> Log:
    try:
        return logfiles.read_logs(paths, (*rulebook.RULES, *load_packs(say=talk.say)))
    except OSError as error:
        raise UsageError(f"{error.filename or 'a log'} cannot be read: {error.strerror or error}") from error
