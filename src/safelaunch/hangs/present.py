"""What a living attempt does now, what the last look at its ranks has shown, and what its log's failure means so far:
the first that `why` says of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.base.numbers import figure
from safelaunch.hangs.hang import START, STEP, WARM_UP
from safelaunch.why.categories import advice
from safelaunch.why.judge.leavers import is_of_lost_peer
from safelaunch.why.verdict import Verdict

if TYPE_CHECKING:
    from safelaunch.status.silence import LateStep

SHORT_S = 10.0   # below it seconds have two digits
UNTOLD = 0.2     # of a cause that is to be told
Say = Callable[[float], str]


class LastLook(NamedTuple):
    """What a hang check has shown. `is_still`: it found no sign of life."""

    t: float
    said: str
    confidence: float
    is_still: bool
    rank: int | None = None
    host: str | None = None
    suspects: tuple[str, ...] = ()


class Present(NamedTuple):
    """The newest attempt while it lives. `quiet_s`: since its last step, as far as is known."""

    attempt: int
    step: int | None
    quiet_s: float | None
    usual_s: float | None
    late: LateStep | None = None   # as `status` has it
    look: LastLook | None = None
    look_t: float | None = None    # when its supervisor looks next, unless a step comes
    is_looking: bool = False       # that time has come
    ends: str = ""                 # why it is being ended
    slower: str = ""               # that its steps take longer for good

    @property
    def is_silent(self) -> bool:
        return self.late is not None

    def silence(self, span: Say) -> str:
        """ "no step for 24 s (usually 0.2 s)"."""
        phase = self.late.phase if self.late is not None else STEP
        return tell_silence(self.quiet_s or 0.0, self.usual_s, span, phase)

    def to_public(self) -> dict[str, object]:
        """The key `now` of `why --json`."""
        look = None if self.look is None else {
            "t": self.look.t, "summary": self.look.said, "confidence": self.look.confidence,
            "is_still": self.look.is_still, "rank": self.look.rank, "host": self.look.host}
        return {"attempt": self.attempt, "step": self.step, "is_silent": self.is_silent, "quiet_s": self.quiet_s,
                "usual_s": self.usual_s, "look": look, "next_look_t": self.look_t}


def tell_silence(silent_s: float, usual_s: float | None, span: Say, phase: str = STEP) -> str:
    """ "no step for 55 s (usually 0.2 s)"; the phase where it takes longer than a step."""
    often = "" if not usual_s else f"{figure(usual_s, 2)} s" if usual_s < SHORT_S else span(usual_s)
    usual = f" (usually {often})" if often else ""
    if phase == START:
        return f"no first step for {span(silent_s)}"
    return f"no step for {span(silent_s)}{usual}{'' if phase in (STEP, WARM_UP) else f', at a time of {phase}'}"


def tell(now: Present, span: Say, clock: Say, has_failure: bool = False) -> list[str]:
    """The lines for people, the most important first. `has_failure`: its log tells of one."""
    after = f" after step {now.step}" if now.step is not None else ""
    if now.ends:
        return [f"attempt {now.attempt} is being ended{after}: {now.ends}"]
    if not now.is_silent:
        if has_failure:
            at = f" (step {now.step})" if now.step is not None else ""
            return [f"attempt {now.attempt} has not ended{at}, but its log tells of a failure"]
        how_far = f": step {now.step}" if now.step is not None else ", and no step is logged yet"
        return [f"attempt {now.attempt} runs{how_far}", *filter(None, (now.slower,))]
    lines = [f"attempt {now.attempt} is silent: {now.silence(span)}{after}"]
    if now.look is not None:
        lines.append(f"{now.look.said} ({now.look.confidence:.0%} sure, seen at {clock(now.look.t)})")
    if now.look_t is not None and now.is_looking:
        lines.append(f"its supervisor looks at all ranks since {clock(now.look_t)}")
    elif now.look_t is not None:
        lines.append(f"its supervisor looks at all ranks at {clock(now.look_t)}, unless a step is logged by then")
    return lines


def judge_living(found: Verdict, now: Present, span: Say, clock: Say) -> Verdict:
    """The verdict on an attempt that has not ended, by what its log tells so far. Who has lost a peer is no cause: the
    peer itself may have printed nothing, and its end is known with the attempt's.
    """
    if found.cause is None:
        seen = judge_present(now, span, clock)
        return found if seen is None else replace(seen, notes=found.notes)
    if not is_of_lost_peer(found.rule):
        return found
    if now.look is not None and now.look.is_still and (seen := judge_present(now, span, clock)) is not None:
        return replace(seen, symptoms=(found.cause, *found.symptoms), notes=found.notes)
    return replace(
        found, category="unknown", confidence=UNTOLD, action="none", suspects=(), rule=None, cause=None, cited=(),
        symptoms=(found.cause, *found.symptoms), runner_up=None, candidates=(), rank=None, host=None, port=None,
        file="", place="", do="", summary=f"{found.summary}: another rank has gone, or does not answer. Which one, and "
        "why, is judged when the attempt has ended")


def judge_present(now: Present, span: Say, clock: Say) -> Verdict | None:
    """The verdict on a silent attempt; None = it is not silent."""
    if not now.is_silent:
        return None
    said, look = now.silence(span), now.look
    if look is None:
        begun = "since" if now.is_looking else "from"
        more = f"; the ranks are looked at {begun} {clock(now.look_t)}" if now.look_t is not None else ""
        return Verdict("unknown", f"{said}: an evaluation or a checkpoint may take as long{more}", 0.2, "none")
    if not look.is_still:
        return Verdict("none", f"{said}, but at {clock(look.t)} {look.said}", look.confidence, "none")
    return Verdict("hang", f"{said}: {look.said}", look.confidence, advice("hang"), look.suspects, (look.said,),
                   look.rank, look.host)
