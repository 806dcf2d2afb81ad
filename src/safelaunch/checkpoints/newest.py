"""The order of checkpoints, the newest first: by their steps, and by their times where steps tell nothing.

1. Steps that count the same compare as numbers. Of several patterns that count different things, and of several runs,
   the one whose newest checkpoint changed last goes first.
2. One without a step (last.pt) goes before all with one if it has changed since the newest of them, or tells a later
   step by its content; otherwise behind them, by its time. If its name is none of a training's checkpoint
   (preempt.pth), it must lie beside the newest and be of about its size, or tell a later step.
3. A copy of the best goes behind all others, unless its name or its content tells a later step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from safelaunch.checkpoints import inside, steps, words
from safelaunch.checkpoints.model import Candidate, CheckpointTree

# The formats whose content is asked though a name tells the step; those of other formats are right by their judge.
_READ_FORMATS = ("torch", "safetensors")
# Each costs a read or two.
_MOST_READ = 4
_MOST_PARTS = 4
BROKEN = "named as what is kept of a training that has gone wrong"
# A data set may lie there, of thousands of files.
_MOST_TIMES = 200
# A state of the same training is of about the same size: weights alone are a third of it.
_MOST_TIMES_LARGER = 1.5


def sort(folder: CheckpointTree, candidates: Iterable[Candidate], strongest: Sequence[str]) -> list[Candidate]:
    """The candidates, the newest first; of the same step that of the stronger format."""
    rank = {format: -place for place, format in enumerate(strongest)}
    told = _without_broken([_with_counts(one) for one in candidates])
    numbered = _by_series(folder, [one for one in told if one.step is not None], rank)
    loose = [one for one in told if one.step is None]
    loose.sort(key=lambda one: words.is_of_training(one.path.rpartition("/")[2]), reverse=True)
    times = dict.fromkeys((one.path for one in loose), 0.0)
    times |= {one.path: _changed_s(folder, one) or 0.0 for one in loose[:_MOST_TIMES]}
    loose.sort(key=lambda one: (not _is_best(one), not words.is_former(_name(one)), times[one.path], one.path),
               reverse=True)
    newest = next((one for one in numbered if one.refused is None), None)
    if newest is None:
        return numbered + loose
    newest_s = _changed_s(folder, newest)
    front: list[Candidate] = []
    beside = [_name(one) for one in numbered[:_MOST_READ]]
    leading = [one for one in loose if one.format == newest.format and _may_lead(one, newest)]
    named = {one.path for one in leading if words.is_of_training(_name(one), beside)}
    leading.sort(key=lambda one: one.path in named or _is_best(one), reverse=True)
    for one in leading[:_MOST_READ]:
        is_later = newest_s is not None and times[one.path] > newest_s and not _is_best(one)
        if one.path not in named:
            is_later = is_later and not front and _is_alike(folder, one, newest, beside)
        if _is_ahead(folder, one, newest, is_later):
            front.append(one)
    return front + numbered + [one for one in loose if one not in front]


def read_step(folder: CheckpointTree, candidate: Candidate) -> int | None:
    """The step of a whole checkpoint: by its content where that tells one, else by its name."""
    if candidate.format not in _READ_FORMATS and candidate.step is not None:
        return candidate.step
    return inside.read(folder, candidate).beside(candidate.step, candidate.counts or "")


def _without_broken(told: Sequence[Candidate]) -> list[Candidate]:
    """Those that are named for weights that have gone wrong refused, where others are not."""
    if all(words.is_broken(_name(one)) for one in told):
        return list(told)
    return [replace(one, refused=one.refused or BROKEN) if words.is_broken(_name(one)) else one for one in told]


def _with_counts(one: Candidate) -> Candidate:
    named = steps.read_name(one.path.rpartition("/")[2])
    return one if one.counts is not None else replace(
        one, counts=named.unit if named.step == one.step and named.unit else steps.STEP)


def _by_series(folder: CheckpointTree, numbered: Sequence[Candidate], rank: dict[str, int]) -> list[Candidate]:
    """Each series by its steps; several by the times of their newest ones, or by steps where nobody knows the times."""
    series: dict[str, list[Candidate]] = {}
    for one in numbered:
        series.setdefault(f"{_run_of(one.path)} {one.counts}", []).append(one)
    for held in series.values():
        held.sort(key=lambda one: one.path)
        held.sort(key=lambda one: (one.order or (one.step or 0,), not _is_best(one), rank.get(one.format, 0),
                                      [-part for part in words.main_first(one.path)]), reverse=True)
    if len(series) < 2:
        return [one for held in series.values() for one in held]
    leaders = {counts: next((one for one in held if one.refused is None), held[0]) for counts, held in series.items()}
    times = {counts: _changed_s(folder, one) for counts, one in leaders.items()}
    if None in times.values():
        times = {counts: float(one.step or 0) for counts, one in leaders.items()}
    own = {counts: not words.is_aside(_name(one)) for counts, one in leaders.items()}   # rollout/dataset_state_19.pt
    return [one for counts in sorted(series, key=lambda counts: (own[counts], times[counts] or 0.0), reverse=True)
            for one in series[counts]]


def _run_of(path: str) -> str:
    """The folders above it down to the last that is a run's: each run counts anew."""
    *above, _ = path.split("/")
    runs = [at for at, name in enumerate(above, 1) if words.is_run(name) and any(map(str.isdigit, name)) and not (
        steps.read_name(name).unit or name.startswith("version"))]
    return "/".join(above[: max(runs, default=0)])


def _changed_s(folder: CheckpointTree, one: Candidate) -> float | None:
    """When it was written: a folder that is written anew in place keeps its own time."""
    times = [folder.mtime_s(path) for path in {one.path, *one.parts[:_MOST_PARTS]}]
    return max((time for time in times if time is not None), default=None)


def _is_best(one: Candidate) -> bool:
    return words.is_best(one.path)


def _name(one: Candidate) -> str:
    return one.path.rpartition("/")[2]


def _may_lead(one: Candidate, newest: Candidate) -> bool:
    """Whether an unnumbered one can be the newest state of the training that wrote those with a step."""
    return one.refused is None and (not words.is_aside(_name(one)) or (
        words.is_aside(_name(newest)) and not words.is_beside(_name(one))))


def _is_alike(folder: CheckpointTree, one: Candidate, newest: Candidate, beside: Sequence[str]) -> bool:
    """Whether a file of any name is a state of that training by its place, its size and a name of its own."""
    sizes = [folder.size(path) or 0 for path in (one.path, newest.path)]
    is_near = one.path.rpartition("/")[0] == newest.path.rpartition("/")[0] and min(sizes) * _MOST_TIMES_LARGER >= max(
        sizes) > 0
    return is_near and not words.is_former(_name(one)) and words.is_own_name(_name(one), beside)


def _is_ahead(folder: CheckpointTree, one: Candidate, newest: Candidate, is_later: bool) -> bool:
    """Whether it is newer than the newest numbered one: by its content where both count the same, else by its time."""
    told, other = inside.read(folder, one), inside.read(folder, newest)
    for mine, its in ((told.step, other.step), (told.epoch, other.epoch)):
        if mine and its:
            return mine > its or (is_later and mine + 1 >= its)
    step = newest.step or 0
    if newest.counts == steps.EPOCH and told.epoch:
        return told.epoch > step + 1 or (is_later and told.epoch + 1 >= step)
    if newest.counts == steps.STEP and told.step:
        return told.step > step + 1 or (is_later and told.step + 1 >= step)
    return is_later
