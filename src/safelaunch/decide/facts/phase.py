"""In which phase a supervisor is, and which phases may follow each other."""

from __future__ import annotations

from enum import Enum

from safelaunch.decide.facts.seen import Live


class Phase(Enum):
    """What a supervisor is doing."""

    BORN = "born"                     # it opens the endpoint, reads the journal and takes over what lives
    IDLE = "idle"                     # no attempt lives: it launches one, waits, or ends the job
    LIVE = "live"                     # an attempt trains
    ENDING = "ending the attempt"     # asked, killed or over, until nothing of it is left and it has its verdict
    PRESERVING = "preserving"         # the site of a failure is kept for people
    HANDING_OVER = "handing over"     # the run goes to its next job
    FINISHING = "finishing"           # the run ends
    SUPERSEDED = "superseded"         # another supervisor leads: this one leaves


# From each phase to SUPERSEDED as well. tests/pure/decide/test_phase.py holds docs/architecture.md to it, and the
# simulation every supervisor.
NEXT: dict[Phase, tuple[Phase, ...]] = {
    Phase.BORN: (Phase.IDLE, Phase.LIVE, Phase.ENDING, Phase.PRESERVING),
    Phase.IDLE: (Phase.LIVE, Phase.PRESERVING, Phase.HANDING_OVER, Phase.FINISHING),
    Phase.LIVE: (Phase.ENDING,),
    Phase.ENDING: (Phase.IDLE, Phase.PRESERVING),
    Phase.PRESERVING: (Phase.IDLE, Phase.LIVE, Phase.HANDING_OVER, Phase.FINISHING),
    Phase.HANDING_OVER: (Phase.FINISHING,),   # a person has cancelled the next job
    Phase.FINISHING: (),
    Phase.SUPERSEDED: (),
}


def phase_of(live: Live | None, *, is_handing_over: bool, is_finishing: bool, is_preserving: bool) -> Phase:
    """The phase of a supervisor that has started and is not superseded."""
    if is_finishing:
        return Phase.FINISHING
    if is_handing_over:
        return Phase.HANDING_OVER
    if live is not None:
        is_ending = live.fenced or live.end_row is not None or live.killed_t is not None
        return Phase.ENDING if is_ending else Phase.LIVE
    return Phase.PRESERVING if is_preserving else Phase.IDLE


def may_follow(before: Phase, after: Phase) -> bool:
    """Whether a supervisor may go on so."""
    return after in (before, Phase.SUPERSEDED, *NEXT[before])
