"""How long a training may be silent before a hang check: learned for each phase from the run's own history.

In one real training 35 h were lost to unnoticed hangs. There an evaluation of 7 steps is healthy, a checkpoint takes
40. Silence is only the first witness. It leads to a hang check; nothing is ended without a second witness
(stacks.verdict). So a threshold that is too short costs a check, and one that is too long costs node-hours.
benchmarks.hangs runs thousands of job-hours through this file.

Laws:
- The first step is never judged by later ones: it loads, compiles, warms up. `first_step_s` is its limit.
- A new interval begins at each new step, and where a phase begins or ends in the log. It belongs to the phase that its
  first line named, and is judged by the longest intervals of that phase.
- A phase that was seen less than SEEN times gets a fixed, long limit.
- Long silences at regular steps (a silent evaluation each 500) are recognised by their place.
- A single stall (of a shared filesystem) raises no limit: the next one is checked again, and found alive.
- Each check that ends nothing delays the next one, but never beyond the moment at which the silence counts.
- Where a rank has raised an exception that nobody caught, a check follows soon in every phase: its process may not end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from safelaunch.trainlog.lines import END, Talk

START, WARM_UP, STEP = "start", "warm-up", "step"
SHARE = 1.3             # of the longest learned duration
NOTICE_S = 55.0         # a hang is noticed within a minute where no phase takes longer
LAG_S = 3.0             # the leader hears of a step a second late, and of its absence
UNSEEN_S = 900.0        # for a phase that was not seen often enough to know it
UNSEEN_STEPS = 60.0     # ... or so many steps, if that is longer, and not longer than ...
UNSEEN_MOST_S = 3600.0
SEEN = 3                # a second checkpoint takes up to twice as long as the first (shared filesystems)
WARM_STEPS = 5          # the first ones compile, allocate, fill caches: they teach nothing of the others
QUIET_S = 1800.0        # trainings whose log names no steps: the longest silence counts, and patience
GROWTHS = 100           # pieces of log after which such a silence is known
HOLD_S = 300.0          # half of NCCL's own patience; a failover of Lustre's or GPFS's servers takes minutes
NAMED_S = 100.0         # ... where all wait for a rank that is named, and nothing takes its time (hangs.named)
HOLD_FILES_S = 900.0    # asleep in a file's call, download or build: Lustre's recovery_time_hard (mount.lustre(8))
HOLD_MOST_S = 3600.0
LOOK_MOST_S = 3600.0    # between two looks at one silence
SECOND_START_S = 300.0  # a restart is as long as the others were, give or take a cold cache
LONG_GAP = 3.0          # times the median: no ordinary step
LONG_S = 15.0           # ... and at least so long
KEPT = 64               # durations of each phase
WINDOW = 1000           # durations after which the longest one may begin to be forgotten
PLACES = 24             # long silences that are searched for a rule


@dataclass(frozen=True)
class Learned:
    """Durations of one phase: the newest, how many there were, and the longest of the last WINDOW to 2 x WINDOW."""

    newest: tuple[float, ...] = ()
    count: int = 0
    longest_s: float = 0.0
    window_s: float = 0.0     # the longest of the present window

    def add(self, duration_s: float) -> Learned:
        """With one more."""
        is_new = self.count % WINDOW == 0
        window_s = max(duration_s, 0.0 if is_new else self.window_s)
        longest_s = max(self.window_s, duration_s) if is_new else max(self.longest_s, duration_s)
        return Learned((*self.newest, duration_s)[-KEPT:], self.count + 1, longest_s, window_s)

    def and_then(self, later: Learned) -> Learned:
        """Both, where one attempt follows another."""
        return Learned((*self.newest, *later.newest)[-KEPT:], self.count + later.count,
                       max(self.longest_s, later.longest_s), later.window_s)

    @property
    def median_s(self) -> float:
        ordered = sorted(self.newest)
        return ordered[len(ordered) // 2] if ordered else 0.0


class Places(NamedTuple):
    """Steps at which silences without a sign come: every `period`-th, as `anchor` is one; the longest of them."""

    period: int
    anchor: int
    longest_s: float


@dataclass(frozen=True)
class Rhythm:
    """What was learned, and where the training is now; times are monotonic seconds."""

    first_step_s: float                       # how long the first step may take
    no_progress_s: float | None = None        # the user's own word on every later one; None = learn
    step: int | None = None
    mark: str = ""                            # what the log named last: a step, an epoch's fraction
    since_s: float = 0.0                      # when the present piece began
    steps: int = 0
    phase: str = START                        # which the log named last
    is_guess: bool = False                    # ... or which the stacks showed
    grew_s: float = 0.0
    growths: int = 0
    longest_quiet_s: float = 0.0              # between two pieces of log
    learned: dict[str, Learned] = field(default_factory=dict)   # by phase, of this attempt
    before: dict[str, Learned] = field(default_factory=dict)    # of those before it
    silences: tuple[tuple[int, float], ...] = ()   # steps after which an unexplained long interval came, and its length
    places: tuple[Places, ...] = ()
    patience: float = 1.0                     # grows with each hang check that found the training alive
    alive_s: float = 0.0                      # when a check saw a rank work, during this silence
    check_by_s: float = math.inf               # the next check comes by then
    raised_s: float = math.inf                # when a rank raised, and no step has come since


def begin(now_s: float, first_step_s: float, no_progress_s: float | None, before: Rhythm | None = None, *,
          is_resized: bool = False, is_imported: bool = False) -> Rhythm:
    """The rhythm of a new attempt; what was learned from earlier attempts is kept.

    With another number of nodes its steps take another time: starts and first steps are learned anew then. Where a
    start may bring a container's image to a node that had none, no start tells how long the next one takes.
    """
    fresh = Rhythm(first_step_s, no_progress_s, since_s=now_s, grew_s=now_s)
    if before is None:
        return fresh
    kept = {phase: before.before.get(phase, Learned()).and_then(before.learned.get(phase, Learned()))
            for phase in (*before.before, *before.learned)}
    if is_resized:
        kept = {phase: learned for phase, learned in kept.items() if phase not in (START, WARM_UP)}
    if is_imported:
        kept.pop(START, None)
    return replace(fresh, before=kept, silences=before.silences, places=before.places,
                   longest_quiet_s=before.longest_quiet_s)


def update(rhythm: Rhythm, now_s: float, talk: Talk) -> Rhythm:
    """The log grew at `now_s`; `talk` is what the new part says."""
    now_s = max(now_s, rhythm.since_s)   # the log may have grown before a stall that was forgiven
    quiet_s = now_s - rhythm.grew_s
    rhythm = replace(rhythm, grew_s=now_s, growths=rhythm.growths + 1,
                     longest_quiet_s=max(rhythm.longest_quiet_s, quiet_s))
    is_step = _is_new(rhythm, talk)
    if talk.has_raised and not is_step and rhythm.raised_s == math.inf:
        rhythm = check_by(replace(rhythm, raised_s=now_s), now_s + NOTICE_S)
    check_by_s = math.inf if is_step or rhythm.raised_s == math.inf else rhythm.check_by_s   # others still write
    if rhythm.steps == 0 and not is_step:
        # The start is one piece: its words are as many as there are frameworks.
        return replace(rhythm, check_by_s=check_by_s)
    if not is_step and (not talk.signs or talk.signs == (rhythm.phase,)):
        return rhythm   # 64 ranks say "saving checkpoint" once each
    rhythm = _learn(rhythm, now_s - rhythm.since_s)
    steps = rhythm.steps + (talk.named if is_step else 0)   # of short ones a read brings many
    return replace(
        rhythm, since_s=now_s, steps=steps, patience=1.0, alive_s=0.0, check_by_s=check_by_s, is_guess=False,
        raised_s=math.inf if is_step else rhythm.raised_s,
        mark=talk.mark if is_step else rhythm.mark, step=talk.step if is_step else rhythm.step,
        phase=talk.signs[-1] if talk.signs else _plain(steps))


def _is_new(rhythm: Rhythm, talk: Talk) -> bool:
    if not talk.mark or talk.mark == rhythm.mark:
        return False
    # Ranks that lag behind name older steps; a bar that begins again at each epoch falls farther.
    return talk.step is None or rhythm.step is None or not rhythm.step - 3 <= talk.step <= rhythm.step


def _plain(steps: int) -> str:
    return STEP if steps > WARM_STEPS else WARM_UP


def _learn(rhythm: Rhythm, length_s: float) -> Rhythm:
    """With the interval that has just ended."""
    phase, typical_s = rhythm.phase, step_s(rhythm)
    is_plain = phase == STEP or rhythm.is_guess
    if is_plain and rhythm.step is not None and typical_s > 0 and length_s > max(LONG_GAP * typical_s, LONG_S):
        # Not a step's own duration: it must not raise the limit of a plain step.
        silences = (*rhythm.silences, (rhythm.step, length_s))[-PLACES:]
        rhythm = replace(rhythm, silences=silences, places=find_places(silences))
        if not rhythm.is_guess:
            return rhythm
    known = rhythm.learned.get(phase, Learned())
    return replace(rhythm, learned={**rhythm.learned, phase: known.add(length_s)})


def step_s(rhythm: Rhythm) -> float:
    """The median time between two lines that name a step, each tenth perhaps; 0 = not known yet.

    Of the commonest piece: where each step's line ends an evaluation ("val_loss: 4.1", NeMo), that is the step.
    """
    pieces = [learned for phase, learned in rhythm.learned.items() if phase not in (START, WARM_UP)]
    return max(pieces, key=lambda learned: learned.count).median_s if pieces else 0.0


def phase_of(rhythm: Rhythm) -> str:
    """What the training is doing, by its log or its stacks; for people."""
    return rhythm.phase.removesuffix(END)


def patience_s(rhythm: Rhythm) -> float:
    """Seconds of silence, counted from `since_s`, after which a hang check is due."""
    if rhythm.phase == START:
        return _start_s(rhythm) * rhythm.patience
    if rhythm.no_progress_s is not None:
        return rhythm.no_progress_s * rhythm.patience
    return max(NOTICE_S, _learned_s(rhythm) - LAG_S, _at_this_place_s(rhythm) - LAG_S) * rhythm.patience


def _start_s(rhythm: Rhythm) -> float:
    seen = rhythm.before.get(START, Learned())
    if seen.count < 2:
        return rhythm.first_step_s
    return min(rhythm.first_step_s, max(SECOND_START_S, SHARE * seen.longest_s))


def _learned_s(rhythm: Rhythm) -> float:
    own, before = rhythm.learned.get(rhythm.phase, Learned()), rhythm.before.get(rhythm.phase, Learned())
    if rhythm.phase == STEP:   # of this attempt only; WARM_STEPS have gone before
        warm = rhythm.learned.get(WARM_UP, Learned()).newest[-2:]
        return SHARE * max(own.longest_s, *(warm if own.count < WARM_STEPS else ()), 0.0)
    if own.count >= SEEN:
        return SHARE * own.longest_s
    longest_s = max(own.longest_s, before.longest_s * slower(rhythm))
    if own.count + before.count >= SEEN:
        return SHARE * longest_s
    return max(UNSEEN_S, SHARE * longest_s, min(UNSEEN_MOST_S, UNSEEN_STEPS * step_s(rhythm)))


def slower(rhythm: Rhythm) -> float:
    """How much longer than before everything may take: an evaluation on half of the nodes takes twice as long."""
    before = rhythm.before.get(STEP, Learned()).median_s
    now = rhythm.learned.get(STEP, Learned()).median_s
    return max(1.0, now / before) if before else 1.0


def deadline_s(rhythm: Rhythm) -> float:
    """When the next hang check is due, monotonic seconds."""
    return min(rhythm.check_by_s, _patient_until_s(rhythm))


def _patient_until_s(rhythm: Rhythm) -> float:
    """The same by the durations only. If the log names no steps, its silence counts."""
    if rhythm.steps == 0 and rhythm.no_progress_s is None and START not in rhythm.before:
        quiet_s = max(QUIET_S, min(3 * rhythm.longest_quiet_s, rhythm.longest_quiet_s + UNSEEN_MOST_S))
        if rhythm.growths < GROWTHS:
            quiet_s = max(quiet_s, rhythm.first_step_s)
        return max(rhythm.since_s + patience_s(rhythm), rhythm.grew_s + quiet_s * rhythm.patience)
    return rhythm.since_s + patience_s(rhythm)


def postpone_check(rhythm: Rhythm, now_s: float, phase: str = "") -> Rhythm:
    """A check found the training alive, in this phase if its stacks show one: the next check comes later."""
    rhythm = replace(rhythm, check_by_s=math.inf)
    if phase and rhythm.phase in (STEP, WARM_UP):
        rhythm = replace(rhythm, phase=phase, is_guess=True, patience=1.0)   # which grew by another phase's measure
        if deadline_s(rhythm) > now_s:
            return rhythm
    patience = rhythm.patience
    while deadline_s(replace(rhythm, patience=patience)) <= now_s or patience == rhythm.patience:
        patience *= 1.5
    span_s = deadline_s(replace(rhythm, patience=patience)) - rhythm.since_s
    most_s = now_s + LOOK_MOST_S - rhythm.since_s
    return replace(rhythm, patience=patience * min(1.0, most_s / span_s))


def rank_failed(rhythm: Rhythm, now_s: float) -> Rhythm:
    """A rank has ended badly beside others. Where the log names steps they may wait for it, as for one that raised."""
    if rhythm.steps == 0 or rhythm.raised_s < math.inf:
        return rhythm
    return check_by(replace(rhythm, raised_s=now_s), now_s + NOTICE_S)


def check_by(rhythm: Rhythm, at_s: float) -> Rhythm:
    """The same, with the next check at this moment at the latest."""
    return replace(rhythm, check_by_s=min(rhythm.check_by_s, at_s))


def check_before(rhythm: Rhythm, now_s: float, end_s: float) -> Rhythm:
    """With no check planned behind `end_s`, if one is possible before: what it finds is the last word on this job."""
    return check_by(rhythm, end_s) if now_s + NOTICE_S < end_s else rhythm


def hold_s(rhythm: Rhythm, now_s: float, least_s: float = HOLD_S) -> float:
    """Seconds until a silence that may pass counts as a hang; they start again with each sign of life.

    A step may take three times as long as others, a checkpoint on a busy filesystem twice as long as the longest.
    `least_s`: what the evidence asks for. Less than HOLD_S only in a plain step, as what a phase waits for may show on
    no stack.
    """
    longest_s = max(known.get(rhythm.phase, Learned()).longest_s for known in (rhythm.learned, rhythm.before))
    if rhythm.phase not in (STEP, WARM_UP) or rhythm.is_guess:
        least_s = max(HOLD_S, least_s)
    silence_s = max(least_s, (LONG_GAP + 1) * step_s(rhythm), 2 * longest_s if rhythm.phase != START else 0.0)
    silence_s = min(silence_s, HOLD_MOST_S)   # a log that comes in blocks of hours tells nothing of steps
    after_life_s = rhythm.alive_s + max(HOLD_S, least_s) if rhythm.alive_s else 0.0
    after_raised_s = rhythm.raised_s + HOLD_S if rhythm.raised_s < math.inf else 0.0
    return max(rhythm.since_s + silence_s, after_life_s, after_raised_s) - now_s


def alive(rhythm: Rhythm, at_s: float) -> Rhythm:
    """Something outside the log, such as a new checkpoint, showed that the training went on then."""
    if at_s <= rhythm.since_s:
        return rhythm
    return replace(rhythm, since_s=at_s, patience=1.0, check_by_s=math.inf, raised_s=math.inf)


def forgive(rhythm: Rhythm, stalled_s: float) -> Rhythm:
    """The leader itself was stopped for so long: that was no silence of the training."""
    return replace(rhythm, since_s=rhythm.since_s + stalled_s, grew_s=rhythm.grew_s + stalled_s,
                   check_by_s=rhythm.check_by_s + stalled_s, raised_s=rhythm.raised_s + stalled_s)


def _at_this_place_s(rhythm: Rhythm) -> float:
    """What the coming piece is given because unexplained long ones have come at such steps before."""
    if rhythm.phase != STEP or rhythm.step is None:
        return 0.0
    return max((SHARE * one.longest_s for one in rhythm.places if (rhythm.step - one.anchor) % one.period == 0),
               default=0.0)


def find_places(silences: tuple[tuple[int, float], ...]) -> tuple[Places, ...]:
    """Where long silences come regularly: the distance at which at least three lie, with few left out.

    A silent checkpoint at every 2000 among evaluations at every 500 makes the place of these longer.
    """
    steps = sorted({step for step, _ in silences})
    periods = sorted({after - before for number, before in enumerate(steps) for after in steps[number + 1:]})
    found: list[Places] = []
    for period in periods:
        if period < 2:
            continue
        for anchor in {step % period: step for step in steps}.values():
            members = [(step, length_s) for step, length_s in silences if (step - anchor) % period == 0]
            span = (max(members)[0] - min(members)[0]) // period + 1
            if len(members) >= 3 and len(members) * 3 >= span * 2 and not _is_known(found, period, anchor):
                found.append(Places(period, anchor, max(length_s for _, length_s in members)))
    return tuple(found)


def _is_known(found: list[Places], period: int, anchor: int) -> bool:
    return any(period % one.period == 0 and (anchor - one.anchor) % one.period == 0 for one in found)
