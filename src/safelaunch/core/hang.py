"""How long a training may be silent before somebody looks: learned for each phase from the attempt's own history.

Seeds: 35 h were lost to hangs that nobody noticed; an evaluation that takes 7 steps is healthy, a checkpoint takes 40.
Silence is the first witness only. It leads to a look at all ranks' stacks; nothing is ended before a second one speaks
(core.stacks). So a threshold that is a little too short costs a look, and one that is too long costs the nodes' hours.

Laws:
- The first step is never judged by later ones: it loads, compiles, warms up. `first_step_s` is its only bound.
- A gap belongs to the phase that the log hints at within it; without a hint, to "step".
- A phase that was seen is judged by the longest of its own durations, one that was never seen gets patience.
- Long gaps that come at regular steps without any hint (a silent evaluation each 500 steps) are a phase of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

from safelaunch.core.progress import Talk

SHARE = 1.3             # of the longest learned duration
SHORT_STEP_S = 15.0     # below it a hang is noticed within NOTICE_S
NOTICE_S = 55.0
LEAST_S = 30.0          # a hiccup of the network or of a filesystem takes that long
UNSEEN_S = 900.0        # a phase that the log names and that was never seen
UNSEEN_STEPS = 60.0     # ... or so many steps, if that is longer
QUIET_S = 1800.0        # trainings whose log names no steps: the longest silence counts, and patience
KEPT = 200              # gaps of each phase
LONG_GAP = 3.0          # times the median: no ordinary step
MIN_STEPS = 5           # before that, nothing is known of a step


@dataclass(frozen=True)
class Rhythm:
    """What was learned, and where the training is now; times are monotonic seconds."""

    began_s: float
    first_step_s: float                       # how long the first step may take
    no_progress_s: float | None = None        # the user's own word on every later one; None = learn
    step: int | None = None
    since_s: float = 0.0                      # when the newest step came; before the first: when the attempt began
    steps: int = 0
    grew_s: float = 0.0
    longest_quiet_s: float = 0.0              # between two pieces of log
    hints: frozenset[str] = frozenset()       # since the newest step
    gaps: dict[str, tuple[float, ...]] = field(default_factory=dict)   # by phase, newest last
    long_steps: tuple[tuple[int, float], ...] = ()   # steps behind which an unexplained long gap lay, and its length
    patience: float = 1.0                     # grows with each look that found the training alive


def begin(now_s: float, first_step_s: float, no_progress_s: float | None, before: Rhythm | None = None) -> Rhythm:
    """The rhythm of a new attempt; what an attempt before it has taught is kept."""
    fresh = Rhythm(now_s, first_step_s, no_progress_s, since_s=now_s, grew_s=now_s)
    if before is None:
        return fresh
    return replace(fresh, gaps=before.gaps, long_steps=before.long_steps, longest_quiet_s=before.longest_quiet_s)


def hear(rhythm: Rhythm, now_s: float, talk: Talk) -> Rhythm:
    """The log has grown, and this is what the new part says."""
    quiet_s = now_s - rhythm.grew_s
    rhythm = replace(rhythm, grew_s=now_s, longest_quiet_s=max(rhythm.longest_quiet_s, quiet_s))
    if talk.step is None or talk.step == rhythm.step:
        return replace(rhythm, hints=rhythm.hints | talk.hints)
    gap_s = now_s - rhythm.since_s
    made = replace(rhythm, step=talk.step, since_s=now_s, steps=rhythm.steps + 1, hints=talk.hints, patience=1.0)
    if rhythm.step is None:
        return made   # the first one teaches nothing about the others
    return _learn(made, rhythm, gap_s)   # between two lines that name a step, which may be each tenth only


def _learn(made: Rhythm, before: Rhythm, gap_s: float) -> Rhythm:
    phase = phase_of(before)
    median_s = _median(made.gaps.get("step", ()))
    is_long = phase == "step" and median_s > 0 and gap_s > max(LONG_GAP * median_s, LEAST_S / 2)
    if is_long and before.step is not None:
        # Not a step's own duration: it must not stretch what a plain step is given.
        return replace(made, long_steps=(*made.long_steps, (before.step, gap_s))[-KEPT:])
    known = made.gaps.get(phase, ())
    return replace(made, gaps={**made.gaps, phase: (*known, gap_s)[-KEPT:]})


def phase_of(rhythm: Rhythm) -> str:
    """What the training is doing, as far as its log tells."""
    if rhythm.step is None:
        return "start"
    for phase in ("checkpoint", "evaluation", "compile", "data"):
        if phase in rhythm.hints:
            return phase
    return "step"


def patience_s(rhythm: Rhythm) -> float:
    """Seconds of silence, counted from the newest step, after which somebody should look."""
    phase = phase_of(rhythm)
    if phase == "start":
        return rhythm.first_step_s * rhythm.patience
    if rhythm.no_progress_s is not None:
        return rhythm.no_progress_s * rhythm.patience
    step_s = max(rhythm.gaps.get("step", ()), default=0.0)
    if rhythm.steps < MIN_STEPS or not step_s:
        return max(UNSEEN_S, SHARE * step_s) * rhythm.patience
    plain_s = SHARE * step_s if step_s > SHORT_STEP_S else max(LEAST_S, min(NOTICE_S, 4 * step_s))
    if phase == "step":
        return max(plain_s, _regular_s(rhythm)) * rhythm.patience
    seen = rhythm.gaps.get(phase, ())
    own_s = SHARE * max(seen) if seen else max(UNSEEN_S, UNSEEN_STEPS * step_s)
    return max(plain_s, own_s) * rhythm.patience


def deadline_s(rhythm: Rhythm) -> float:
    """When somebody should look, monotonic seconds. Of a training that names no steps the log's silence counts."""
    if rhythm.step is None and rhythm.steps == 0 and rhythm.no_progress_s is None:
        quiet_s = max(QUIET_S, 3 * rhythm.longest_quiet_s, rhythm.first_step_s)
        return max(rhythm.since_s + patience_s(rhythm), rhythm.grew_s + quiet_s * rhythm.patience)
    return rhythm.since_s + patience_s(rhythm)


def look_again(rhythm: Rhythm) -> Rhythm:
    """A look has found the training alive: the next one comes later."""
    return replace(rhythm, patience=rhythm.patience * 1.5)


def _regular_s(rhythm: Rhythm) -> float:
    """What the coming gap is given because unexplained long ones have come at such steps before."""
    if rhythm.step is None or not rhythm.long_steps:
        return 0.0
    if len(rhythm.long_steps) < 3:
        return SHARE * max(gap_s for _, gap_s in rhythm.long_steps)   # too few to see a rule in them: patience
    period = _period([step for step, _ in rhythm.long_steps])
    last = rhythm.long_steps[-1][0]
    if period and (rhythm.step - last) % period:
        return 0.0
    return SHARE * max(gap_s for _, gap_s in rhythm.long_steps)


def _period(steps: list[int]) -> int:
    """The distance that all of these steps share; 0 = none, or a meaningless one."""
    found = 0
    for before, after in pairwise(steps):
        a, b = abs(after - before), found
        while b:
            a, b = b, a % b
        found = a
    return found if found > 1 else 0


def _median(values: tuple[float, ...]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0.0
