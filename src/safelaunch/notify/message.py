"""A message: its title and text, in plain words; secrets of logs are hidden in it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from safelaunch.base.endings import RunEnd
from safelaunch.base.plaintext import clean
from safelaunch.base.secretmask import mask
from safelaunch.run.fold.state import Attempt, State
from safelaunch.run.notices import Notice
from safelaunch.run.noticewords import ENDS, SEVERITIES, WARNING, WORDS
from safelaunch.slurm import nodefold

MOST_TOLD, LINE_CHARS = 20, 300


class Message(NamedTuple):
    """What is sent."""

    run: str
    title: str
    severity: str
    events: tuple[str, ...]
    text: str


def compose(name: str, run_dir: str, state: State, told: Sequence[Notice]) -> Message:
    """The message on these notices, of which there is at least one; the gravest gives the title."""
    main = max(told, key=lambda one: (one.word in ENDS, SEVERITIES.index(WORDS[one.word].severity), one.t))
    attempt = next((one for one in state.attempts if one.number == main.attempt), None)
    others = [one for one in told if one is not main]
    more = [f"Also: {_sentence(one)}" for one in others[:MOST_TOLD]]
    if len(others) > MOST_TOLD:
        more.append(f"Also: {len(others) - MOST_TOLD} more, see the events")
    lines = [f"{name} {_sentence(main)}", *_verdict(attempt), *more, *_where(state, attempt), f"Run folder: {run_dir}",
             f"Next: {_next(main.word, run_dir)}"]
    early = state.ended_early if main.word == RunEnd.COMPLETED else None
    headline = WORDS[main.word].headline + (f" at {early.unit} {early.step} of {early.total}" if early else "")
    is_nan = main.word == RunEnd.COMPLETED and state.ended_nan is not None
    headline += ", but its loss is no finite number" if is_nan else ""
    severity = WARNING if early or is_nan else WORDS[main.word].severity
    return Message(name, _plain(f"safelaunch: {name} {headline}"), severity,
                   tuple(one.word for one in told), "".join(f"{_plain(line)}\n" for line in lines))


def of_job(job: str, name: str, form: str, lines: Sequence[str]) -> Message:
    """The message on a job that safelaunch did not submit."""
    title = _plain(f"safelaunch: {name} (job {job}) {WORDS[form].headline}")
    return Message(name, title, WORDS[form].severity, (form,),
                   "".join(f"{_plain(line)}\n" for line in lines))


def trial(name: str) -> Message:
    """What `safelaunch notify --test` sends."""
    return Message(name, _plain(f"safelaunch: test message of {name}"), "info", ("test",),
                   _plain(f"This is a test of notify: messages on the run {name} reach you.") + "\n")


def _sentence(notice: Notice) -> str:
    of = notice.key.partition(" ")[2] if notice.word == "suspect_node" else ""
    why = f": {notice.why}" if notice.why else ""
    return f"{WORDS[notice.word].headline}{f' ({of})' if of else ''}{why}"


def _verdict(attempt: Attempt | None) -> list[str]:
    if attempt is None or attempt.category is None:
        return []
    lines = [f"  {line.strip()}" for line in attempt.evidence]
    return [f"Verdict on attempt {attempt.number}: {attempt.category} ({attempt.confidence:.0%} sure)"
            + (f": {attempt.summary}" if attempt.summary else ""),
            *([f"Evidence in attempts/{attempt.number:04d}/main.log:", *lines] if lines else [])]


def _where(state: State, attempt: Attempt | None) -> list[str]:
    if attempt is None:
        return [f"Where: job {state.job.id}"] if state.job is not None else []
    step = f", at step {attempt.step}" if attempt.step is not None else ""
    first = f", first on {attempt.failed_node}" if attempt.failed_node else ""
    return [f"Where: job {attempt.job}, attempt {attempt.number}{step}, on {nodefold.fold(attempt.nodes)}{first}"]


def _next(form: str, run_dir: str) -> str:
    verb = {"gave_up": "why", "preserved": "why", "hang": "stacks", "suspect_node": "nodes"}.get(form, "status")
    return f"safelaunch {verb}" + ("" if verb == "nodes" else f" {shlex.quote(run_dir)}")


def _plain(line: str) -> str:
    return clean(mask(line))[:LINE_CHARS]
