"""Whether steps take longer for good: a robust two-sided CUSUM over the logarithm of the seconds per step.

Page (Biometrika 1954): the log likelihood ratio of "longer by the tolerance" against "as ever" is summed up and never
falls below 0. A healthy run then takes e^ALARM independent values to an alarm, or more (Lorden 1971). Each value counts
CLIP at most (Lucas and Crosier 1982), so an evaluation is an outlier and LASTING values must agree. Noise that lasts
(autocorrelated) counts by its long-run deviation. An alarm is reported if the median has moved by the tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from safelaunch.trainlog.figures import median

SETTLE = 10                 # first values after a start: compiling, cold caches
LEARN = 32                  # values that make the first level
KEPT = 512                  # newest values that are known
DELAY = 32                  # a value teaches level and noise only then: one of a drop is out by then
MEMORY = 1000               # values in which the level follows a creeping change
ALARM = math.log(1e6)
LASTING = 8                 # values that must agree
CLIP = ALARM / LASTING
MOST_DOUBT = 256            # values that a drop must last at most, where others have passed
SURE = 0.999
FLOOR = 0.001               # least noise: logs print two decimals of a second
BLOCK, BLOCKS = 16, 8       # values whose medians show noise that lasts, and how many at least
MOST_RHO = 0.95             # more cannot be told in KEPT values
_OUTER = 0.15               # share of outliers on each side that the noise does not see
_WIDTH = 2.0729             # between the quantiles _OUTER and 1 - _OUTER of a normal distribution, in deviations
_EACH = 16                  # values after which the noise is measured again


class StepTime(NamedTuple):
    """Seconds per step, as a log names it with a step. `phase`: what else that time holds (trainlog.lines)."""

    step: int
    seconds: float
    phase: str = ""


class PaceChange(NamedTuple):
    """Steps take longer since `step`, or no longer so. `confidence`, 0..1: that at least half the tolerance is real."""

    step: int
    seen_step: int
    from_s: float
    to_s: float
    confidence: float
    is_recovery: bool = False


@dataclass(frozen=True)
class Excursion:
    """A sum of Page's: how high, and the number of values since it was 0."""

    score: float = 0.0
    count: int = 0

    def add(self, gain: float, most: int) -> Excursion:
        """With one more value."""
        score = min(ALARM, self.score + max(-CLIP, min(CLIP, gain)))
        return Excursion(score, min(most, self.count + 1)) if score > 0 else Excursion()


class PaceWatch(NamedTuple):
    """All that is known of a run's speed; levels and noise are of logarithms. `tolerance` is above 0, such as 0.05.

    `normal` is the level before a drop that was reported and lasts; None = there is none. `passed`: how many values the
    longest one that was over lasted. An evaluation, or a filesystem that others use, comes again. So the next drop must
    last twice as long before it counts.
    """

    tolerance: float
    step: int | None = None
    settle: int = SETTLE
    level: float | None = None
    learned: int = 0
    noise: float = FLOOR
    recent: tuple[tuple[int, float], ...] = ()
    slower: Excursion = Excursion()
    faster: Excursion = Excursion()
    normal: float | None = None
    passed: int = 0


def restart(watch: PaceWatch) -> PaceWatch:
    """The same when the training starts anew: its level stays known, its first values are left out."""
    return watch._replace(step=None, settle=SETTLE, slower=Excursion(), faster=Excursion())


def follow(watch: PaceWatch, pace: StepTime) -> tuple[PaceWatch, PaceChange | None]:
    """After one more value of the log, and what it has shown.

    A step that falls is a restart; one told twice counts once. Values of a phase, and what is no positive number, are
    left out.
    """
    if pace.phase or not (math.isfinite(pace.seconds) and pace.seconds > 0) or pace.step == watch.step:
        return watch, None
    if watch.step is not None and pace.step < watch.step:
        watch = restart(watch)
    watch = watch._replace(step=pace.step)
    if watch.settle > 0:
        return watch._replace(settle=watch.settle - 1), None
    watch = _learn(watch._replace(recent=(*watch.recent, (pace.step, math.log(pace.seconds)))[-KEPT:]))
    if watch.level is None:
        return watch, None
    watch = _score(watch, watch.level)
    return _judge(watch, watch.level or 0.0)


def noise_of(values: Sequence[float]) -> float:
    """The long-run deviation of one value: its own, or as large as it must be for blocks of values to vary as they do.

    The autocorrelation comes from the deviation of neighbours' differences (Gnanadesikan and Kettenring 1972).
    """
    own = _spread(values)
    rough = _spread([later - before for before, later in pairwise(values)])
    rho = max(0.0, min(MOST_RHO, 1 - (rough / own) ** 2 / 2)) if own > 0 else 0.0
    by_neighbours = own * math.sqrt((1 + rho) / (1 - rho))
    blocks = [median(values[at:at + BLOCK]) for at in range(0, len(values) - BLOCK + 1, BLOCK)]
    by_blocks = _spread(blocks) * math.sqrt(BLOCK * 2 / math.pi) if len(blocks) >= BLOCKS else 0.0
    return max(FLOOR, by_neighbours, by_blocks)


def _spread(values: Sequence[float]) -> float:
    ordered, outer = sorted(values), int(len(values) * _OUTER)
    return (ordered[-1 - outer] - ordered[outer]) / _WIDTH


def _learn(watch: PaceWatch) -> PaceWatch:
    """Level and noise, from values that are old enough; none while a change smaller than the tolerance lasts."""
    if watch.level is None:
        values = [value for _, value in watch.recent]
        if len(values) < LEARN:
            return watch
        return watch._replace(level=median(values), learned=LEARN, noise=noise_of(values))
    if len(watch.recent) <= DELAY or max(watch.slower.score, watch.faster.score) >= ALARM:
        return watch
    learned = watch.learned + 1
    apart = watch.recent[-1 - DELAY][1] - watch.level
    level = watch.level + max(-watch.noise, min(watch.noise, apart)) / min(MEMORY, learned)
    watch = watch._replace(level=level, learned=learned)
    if learned % _EACH or len(watch.recent) < LEARN + DELAY:
        return watch
    return watch._replace(noise=noise_of([value for _, value in watch.recent[:-DELAY]]))


def _score(watch: PaceWatch, level: float) -> PaceWatch:
    shift, value = math.log1p(watch.tolerance), watch.recent[-1][1]
    weight, most = shift / watch.noise ** 2, len(watch.recent)
    slower = watch.slower.add(weight * (value - _upper(level, shift)), most)
    faster = watch.faster.add(weight * (_lower(watch, level, shift) - value), most)
    return watch._replace(slower=slower, faster=faster)


def _upper(level: float, shift: float) -> float:
    return level + shift / 2


def _lower(watch: PaceWatch, level: float, shift: float) -> float:
    """Below it a run has recovered, or is faster than ever."""
    return level - shift / 2 if watch.normal is None else watch.normal + shift / 2


def _judge(watch: PaceWatch, level: float) -> tuple[PaceWatch, PaceChange | None]:
    shift = math.log1p(watch.tolerance)
    if watch.slower.score >= ALARM and watch.slower.count >= min(MOST_DOUBT, 2 * watch.passed):
        after, error = _level_now(watch, watch.slower.count, shift)
        confidence = _normal((after - _upper(level, shift)) / error)
        if after >= level + shift and confidence >= SURE:
            normal = level if watch.normal is None else watch.normal
            return _moved(watch, watch.slower.count, after, normal, confidence)
    if watch.faster.score >= ALARM:
        after, error = _level_now(watch, watch.faster.count, shift)
        confidence = _normal((_lower(watch, level, shift) - after) / error)
        if confidence >= SURE and (watch.normal is not None or after <= level - shift):
            return _moved(watch, watch.faster.count, after, None, confidence)
    return watch, None


def _level_now(watch: PaceWatch, count: int, shift: float) -> tuple[float, float]:
    """Median of no more values than tell it to an eighth of the shift, and the standard error of its change."""
    enough = math.pi / 2 * (8 * watch.noise / shift) ** 2
    values = [value for _, value in watch.recent[-max(LASTING, int(min(enough, count))):]]
    return median(values), watch.noise * math.sqrt(math.pi / 2 * (1 / len(values) + 1 / min(MEMORY, watch.learned)))


def _moved(
    watch: PaceWatch, count: int, after: float, normal: float | None, confidence: float
) -> tuple[PaceWatch, PaceChange | None]:
    """With the new level; a run that is faster than ever is no news."""
    level = watch.level or 0.0
    start = _begin([value for _, value in watch.recent[-count:]], level, after)
    since = watch.recent[-count:][start:]
    change = PaceChange(since[0][0], since[-1][0], math.exp(level), math.exp(after), confidence, normal is None)
    is_news = normal is not None or watch.normal is not None
    passed = len(watch.recent) - len(since) if normal is None and watch.normal is not None else 0
    if passed > MOST_DOUBT / 2:
        passed = 0   # somebody has mended what was no passing thing
    watch = watch._replace(level=after, learned=LEARN, recent=since, slower=Excursion(), faster=Excursion(),
                           normal=normal, passed=max(watch.passed, passed))
    return watch, change if is_news else None


def _begin(values: Sequence[float], level: float, after: float) -> int:
    """Where the change most likely began (Hinkley 1970), each value clipped."""
    half, total, best, start = (after - level) / 2, 0.0, -math.inf, 0
    for at in range(len(values) - 1, -1, -1):
        total += max(-1.0, min(1.0, (values[at] - level) / half - 1))
        if total > best:
            best, start = total, at
    return start


def _normal(z: float) -> float:
    return 0.5 * (1 + math.erf(z / math.sqrt(2)))
