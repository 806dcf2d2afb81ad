"""The verdict on a failure: what `why` answers, and by what the supervisor acts."""

from __future__ import annotations

from dataclasses import dataclass

from safelaunch.why.findings import Cited


@dataclass(frozen=True)
class Verdict:
    """One verdict: `category` is a word of the failure taxonomy, or unknown."""

    category: str
    summary: str
    confidence: float
    action: str
    suspects: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    rank: int | None = None
    host: str | None = None
    port: int | None = None                   # that is taken, or not reached
    file: str = ""                            # that is missing, refused or cannot be written
    rule: str | None = None
    cause: Cited | None = None                # the line that states the cause best; None = no line does
    cited: tuple[Cited, ...] = ()             # what the verdict rests on: the cause, then context, in order of time
    symptoms: tuple[Cited, ...] = ()          # what followed, folded
    candidates: tuple[Cited, ...] = ()        # other possible causes, the likeliest first
    runner_up: Verdict | None = None          # the likeliest other reading
    fingerprint: str = ""
    place: str = ""                           # the user's frame behind an exception: "train.py:7 in main"
    do: str = ""                              # what a person can do, where that depends on more than the rule
    changes: str = ""                         # what would have changed the verdict
    spoken_by: tuple[str, ...] = ()           # hosts whose own lines state the cause
    echoed_by: tuple[str, ...] = ()           # hosts whose lines only follow from a failure elsewhere
    notes: tuple[str, ...] = ()               # about the reading: "only the last of 3 launches was looked at"

    def agrees_with(self, other: Verdict) -> bool:
        """Whether both name the same cause, however sure they are."""
        return self.category == other.category and (
            self.summary == other.summary or (bool(self.fingerprint) and self.fingerprint == other.fingerprint))
