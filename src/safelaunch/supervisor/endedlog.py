"""The log of an ended attempt: on this host's disk where its supervisor lived here, else in the run folder."""

from __future__ import annotations

import os
from pathlib import Path

from safelaunch.core.model import Event
from safelaunch.core.progress.reach import last_epoch as find_epoch
from safelaunch.core.progress.steps import latest_step
from safelaunch.node import fresh
from safelaunch.supervisor import listening, lostprogress
from safelaunch.supervisor.leader import Leader

TAIL_BYTES = 64 << 10
ANSWER_S = 1.0   # of the run folder


def tail(lead: Leader, number: int) -> bytes:
    """The last lines that reached the run folder, of an attempt whose supervisor's host is gone; b"" where the folder
    does not answer. A batch host crashed at step 53, and its successor knew step 17, of the journal.
    """
    path = Path(lead.main_log(number))

    def read() -> str:
        fresh.see(str(path.parent))
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - TAIL_BYTES))
            return stream.read(TAIL_BYTES).decode("latin-1")

    answer = lead.ask_folder(read, ANSWER_S)
    return answer.value.encode("latin-1") if answer.is_ok and answer.value is not None else b""


def last_progress(lead: Leader, number: int, text: bytes) -> list[Event]:
    """The event of the last step that the end of its log names; [] = it names none, or less than the journal."""
    step = listening.read(lead, text, latest_step, None)
    attempt = lead.state.attempt
    known = attempt.step if lead.process is None and attempt is not None and attempt.number == number else None
    return [] if step is None or step < (known or 0) else [lostprogress.progress_event(lead, number, step)]


def last_epoch(lead: Leader, text: bytes) -> float | None:
    """The last epoch that it names."""
    return listening.read(lead, text, lambda cut, _: find_epoch(cut), None)
