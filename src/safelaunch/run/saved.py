"""What came of a request to save and go on (`safelaunch save`): whether it was taken, and a new checkpoint is complete.
"""

from __future__ import annotations

from typing import NamedTuple


class Newest(NamedTuple):
    """A complete checkpoint: when its last file was finished (epoch s), where it is, and its step."""

    t: float
    path: str
    step: int | None


class Seen(NamedTuple):
    """What one look shows."""

    is_there: bool                 # the request has not been taken,
    heard: int | None              # processes that took the signal; None = none was sent, or nobody knows
    newest: Newest | None          # complete; None = there is none, or the folder does not answer
    living: int | None             # the attempt that runs


def judge(before: Newest | None, number: int, sample: Seen, confirmed: Newest | None, *, is_late: bool,
          has_folder: bool) -> str | None:
    """The outcome that one look shows; None = it is too early to tell. `confirmed`: the newest one of the look before.
    """
    is_new = sample.newest is not None and (before is None or sample.newest.t > before.t)
    if is_new and sample.newest == confirmed:
        return "saved"
    is_taken = not sample.is_there or bool(sample.heard)
    if is_taken and not has_folder:
        return "taken"
    if sample.living != number:
        return "ended"
    if not is_late:
        return None
    return "late" if is_taken else "unheard"
