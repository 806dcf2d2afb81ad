"""Checkpoints that are files of no known trainer: which belong together, and which folder is one.

A folder that is named after a step is the checkpoint, with all that lies in it. Loose files are read beside each other
(steps.py): those of one step are a set, called after the model's file. A set that lacks a file which the sets before it
have is torn. Files without a step stand for themselves, with what is saved beside them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from safelaunch.checkpoints import names, steps, tree, words
from safelaunch.checkpoints.model import Candidate, CheckpointTree, join
from safelaunch.checkpoints.steps import NumberedName

# Deep enough for lightning_logs/version_0/checkpoints, and for global_step_N/actor/huggingface below it.
_DEEPEST = 3
_DEEPEST_PART = 3
# A set is held against so many older ones: what most of them have is needed.
_COMPARED = 4
# Written when all files of a step are: by verl, and by EasyR1.
TRACKERS = ("latest_checkpointed_iteration.txt", "checkpoint_tracker.json")
_DIGITS = re.compile(r"\d+")
_LONG_NUMBER = re.compile(r"\d{5}")


class FileForm(NamedTuple):
    """A form of files. `claim`: which of a folder's names are of it; `suffixes`: by which temporary ones are known.

    `is_model`: whether a folder's files make up one model; None where that is nothing to resume from.
    """

    format: str
    claim: Callable[[CheckpointTree, str, Sequence[str]], list[str]]
    suffixes: tuple[str, ...]
    is_model: Callable[[CheckpointTree, str, Sequence[str]], bool | None] = lambda *_: False


def list_candidates(folder: CheckpointTree, kind: FileForm) -> Iterator[Candidate]:
    """Every step's folder and every step's files of the kind; finished by name or refused."""
    yield from _list_in(folder, kind, "", _DEEPEST)


def _list_in(folder: CheckpointTree, kind: FileForm, path: str, deeper: int) -> Iterator[Candidate]:
    inside = [name for name in sorted(folder.names(path)) if not _is_second_name(folder, path, name)]
    folders = [name for name in inside if folder.is_dir(join(path, name))]
    apart = set(folders)
    files = [name for name in inside if name not in apart]
    yield from _list_temporary(path, files, kind)
    claimed = kind.claim(folder, path, [one for one in files if not names.is_temporary(one)])
    is_model = kind.is_model(folder, path, files) if claimed else False
    if is_model:
        parts = tuple(join(path, name) for name in claimed)
        yield Candidate(path, names.step_in(path.rpartition("/")[2]), kind.format, parts)
        return
    yield from list_files(path, claimed if is_model is not None else (), kind)
    if deeper:
        held, others = _split(folder, kind, path, folders)
        yield from _list_folders(path, held, kind, _read_tracker(folder, path))
        for name in others:
            there = join(path, name)
            if not names.is_temporary(name) and tree.may_hold(there):
                try:
                    yield from _list_in(folder, kind, there, deeper - 1)
                except OSError as error:
                    if names.is_step_folder(name):
                        yield Candidate(there, names.step_in(name), kind.format, refused=names.unlisted(error))


def _is_second_name(folder: CheckpointTree, path: str, name: str) -> bool:
    """Whether it is a link to what stands beside it and is looked at under its own name: last → 0900000."""
    to = folder.link(join(path, name))
    if to is None:
        return False
    parent, _, target = to.rpartition("/")
    return parent == path and target != name and target in folder.names(path)


def _list_temporary(path: str, files: Iterable[str], kind: FileForm) -> Iterator[Candidate]:
    for name in files:
        if names.is_temporary(name) and any(suffix in name.lower() for suffix in kind.suffixes):
            yield Candidate(join(path, name), names.step_in(name), kind.format, refused=names.UNFINISHED)


def _split(
    folder: CheckpointTree, kind: FileForm, path: str, folders: Sequence[str]
) -> tuple[dict[NumberedName, tuple[str, ...]], list[str]]:
    """The folders that are checkpoints, each with its files of the kind, and those that may hold some."""
    read = steps.read_names(folders)
    held: dict[NumberedName, tuple[str, ...]] = {}
    others = []
    for name in sorted(folders, key=lambda name: read[name].order, reverse=True):
        parts: tuple[str, ...] = ()
        is_copy = words.is_copy(name) and words.is_of_training(name)
        if read[name].step is not None or is_copy:
            try:
                parts = tuple(_gather(folder, kind, join(path, name), _DEEPEST_PART))
            except OSError:
                parts = ()
        if is_copy and not held and len(parts) == 1:   # a file is named, where it is the only one
            parts = ()
        if parts and not _is_holder(read[name], [part[len(join(path, name)) + 1 :] for part in parts]):
            held[read[name]] = parts
        else:
            others.append(name)
    return held, others


def _gather(folder: CheckpointTree, kind: FileForm, path: str, deeper: int) -> Iterator[str]:
    """The finished files of the kind in a folder, and in those below it."""
    inside = sorted(folder.names(path))
    folders = [name for name in inside if folder.is_dir(join(path, name))]
    apart = set(folders)
    claimed = kind.claim(folder, path, [one for one in inside if one not in apart and not names.is_temporary(one)])
    yield from (join(path, name) for name in claimed)
    for name in folders if deeper else ():
        if not names.is_temporary(name):
            yield from _gather(folder, kind, join(path, name), deeper - 1)


def _is_holder(one: NumberedName, parts: Sequence[str]) -> bool:
    """Whether a folder holds checkpoints of several steps, rather than the parts of one: epoch_1/step_100.pt, … 200."""
    if not one.unit and (words.is_run(one.name) or one.name.isdecimal()):   # a job's id
        below = [steps.read_name(name) for part in parts for name in part.split("/")]
        below = [named for named in below if not one.name.isdecimal() or named.step != one.step]
        numbers = {named.step for named in below if named.step is not None}
        return not numbers.issubset(range(len(numbers) + 1)) or any(   # critic_1.pt, critic_2.pt
            named.unit or words.is_copy(named.name) or _LONG_NUMBER.search(named.name) for named in below)
    above = steps.read_names({part.partition("/")[0] for part in parts})
    told = [named for named in above.values() if named.step is not None]
    found = {named.step for named in told}
    if any(named.is_guess for named in told) or one.is_guess:
        return one.is_guess and bool(told)
    if one.step is None:
        return bool(told)
    has_words = any(named.unit for named in told)
    is_whole_row = found in (set(range(len(found))), set(range(1, len(found) + 1)))   # model_00.pt, model_01.pt
    return len(found) > 1 and (has_words or not is_whole_row)


def _read_tracker(folder: CheckpointTree, path: str) -> tuple[str, int] | None:
    """The file of a trainer that names the last step which is whole, and that step; None without one."""
    for name in TRACKERS:
        there = join(path, name)
        if name in folder.names(path) and folder.size(there):
            found = _DIGITS.search(folder.read(there, 0, 256).decode("ascii", "replace"))
            return (name, int(found.group())) if found else None
    return None


def _list_folders(
    path: str, held: Mapping[NumberedName, tuple[str, ...]], kind: FileForm, tracked: tuple[str, int] | None
) -> Iterator[Candidate]:
    """A candidate for each step's folder; those of one pattern are held against each other and against the tracker."""
    series: dict[tuple[str, str], dict[tuple[int, ...], set[str]]] = {}
    ranks: dict[tuple[str, str], dict[tuple[int, ...], set[str]]] = {}
    for one, parts in held.items():
        files = {part[len(join(path, one.name)) + 1 :] for part in parts}
        series.setdefault((one.unit, one.series), {}).setdefault(one.order, set()).update(
            _DIGITS.sub("#", file) for file in files)
        ranks.setdefault((one.unit, one.series), {}).setdefault(one.order, set()).update(
            file for file in files if names.rank_in(file.rpartition("/")[2]) is not None)
    lost = {(*key, order): file for key, sets in series.items() for order, file in _torn(sets).items()}
    ranks_lost = {(*key, order): file for key, sets in ranks.items() for order, file in _torn_ranks(sets).items()}
    for one, parts in held.items():
        key = one.unit, one.series, one.order
        missing = lost.get(key)
        refused = names.UNFINISHED if names.is_temporary(one.name) else missing and lacks(missing)
        if tracked and (one.step or 0) > tracked[1] and any(other.step == tracked[1] for other in held):
            refused = refused or f"newer than {tracked[1]} in {tracked[0]}: its save has not finished"
        if missing := ranks_lost.get(key) if not names.missing_ranks(parts) else None:
            refused = refused or lacks(missing)
        yield Candidate(join(path, one.name), one.step, kind.format, parts, refused, counts(path, one), one.order)


def list_files(path: str, claimed: Iterable[str], kind: FileForm) -> Iterator[Candidate]:
    """A candidate for each step's files in one folder, and for each file that tells no step."""
    read = list(steps.read_names(claimed).values())
    numbered = [one for one in read if one.step is not None and not words.is_best(one.name)]
    sets = _sets(numbered)
    units = [unit for unit, _ in sets]
    for unit, held in sets:
        # Two models that are trained in one folder: the same word counts for each its own steps.
        apart = "" if units.count(unit) == 1 else next(iter(held.values()))[0].series
        lost = _torn({order: {one.series for one in files} for order, files in held.items()}) | _torn_ranks(
            {order: {f"{one.series} of rank {rank}" for one in files if (rank := names.rank_in(one.name)) is not None}
             for order, files in held.items()})
        for order, files in held.items():
            missing = lost.get(order)
            refused = lacks(missing.replace("#", _as_written(files[0]), 1)) if missing else None
            yield _candidate(path, files, kind, refused, apart)
    for files in _by_series(one for one in read if one.step is not None and words.is_best(one.name)).values():
        yield _candidate(path, files, kind)
    loose: dict[str, list[NumberedName]] = {}
    for one in read:
        if one.step is None:
            loose.setdefault(one.whole, []).append(one)
    for key, beside in _attached(loose).items():
        yield _candidate(path, [*loose[key], *(one for other in beside for one in loose[other])], kind)


def _candidate(
    path: str, files: Sequence[NumberedName], kind: FileForm, refused: str | None = None, apart: str = ""
) -> Candidate:
    """The candidate of one step's files, called after the model's; of its ranks after the first one's."""
    files = sorted(files, key=lambda one: (*words.main_first(one.name), len(one.series), one.series,
                                           names.rank_in(one.name) or 0, one.name))
    parts = tuple(join(path, one.name) for one in files)
    counted = join(path, apart) if apart else counts(path, files[0])
    return Candidate(parts[0], files[0].step, kind.format, parts, refused, counted, files[0].order)


def counts(path: str, one: NumberedName) -> str:
    """What the step of a name counts: "step", "epoch", else the pattern that it is of."""
    return one.unit or ("" if one.step is None else join(path, one.series))


def lacks(name: str) -> str:
    """The reason to skip a set."""
    return f"no {name}, which the checkpoints beside it have: the save has not finished"


def _as_written(one: NumberedName) -> str:
    """The step's digits as they stand in the name."""
    return next((digits for digits in reversed(_DIGITS.findall(one.name)) if int(digits) == one.step), str(one.step))


def _by_series(read: Iterable[NumberedName]) -> dict[tuple[str, tuple[int, ...]], list[NumberedName]]:
    found: dict[tuple[str, tuple[int, ...]], list[NumberedName]] = {}
    for one in read:
        found.setdefault((one.series, one.order), []).append(one)
    return found


def _sets(numbered: Iterable[NumberedName]) -> list[tuple[str, dict[tuple[int, ...], list[NumberedName]]]]:
    """(unit, files by their steps): patterns that share a step and are of other words make up one set."""
    patterns: dict[tuple[str, str], list[NumberedName]] = {}
    for one in numbered:
        patterns.setdefault((one.unit, one.series), []).append(one)
    groups: list[tuple[str, dict[tuple[int, ...], list[NumberedName]]]] = []
    for (unit, _), files in sorted(patterns.items(), key=lambda item: len(item[1]), reverse=True):
        likeness = _DIGITS.sub("#", files[0].series)   # model_fold0_epoch_#, model_fold1_epoch_#
        home = next((held for of, held in groups if of == unit and any(one.order in held for one in files) and not any(
            _DIGITS.sub("#", other.series) == likeness for others in held.values() for other in others)), None)
        if home is None:
            home = {}
            groups.append((unit, home))
        for one in files:
            home.setdefault(one.order, []).append(one)
    return groups


def _torn(sets: Mapping[tuple[int, ...], Collection[str]]) -> dict[tuple[int, ...], str]:
    """What is missing in the sets that lack what most of those before them have (of the first: behind it)."""
    orders = sorted(sets)
    lost = {}
    for at, order in enumerate(orders):
        others = [sets[one] for one in (orders[max(0, at - _COMPARED) : at] or orders[1 : 1 + _COMPARED])]
        for file in sorted({file for other in others for file in other} - set(sets[order])):
            count = sum(file in other for other in others)
            if 2 * count > len(others):
                lost[order] = file
                break
    return lost


def _torn_ranks(sets: Mapping[tuple[int, ...], Collection[str]]) -> dict[tuple[int, ...], str]:
    """The same of the ranks; where the set beside it lacks that rank, too, the job is smaller since then."""
    sets = {order: ranks for order, ranks in sets.items() if ranks}
    following = dict(pairwise(sorted(sets)))
    before = {later: order for order, later in following.items()}
    return {order: file for order, file in _torn(sets).items()
            if order in before and file in sets[before[order]] and file in sets.get(following.get(order, ()), {file})}


def _attached(loose: Iterable[str]) -> dict[str, list[str]]:
    """The unnumbered ones, each with those that are saved beside it: optimizer.pt to model.pt, latest_D to latest_G."""
    def copy_of(name: str) -> frozenset[str]:
        return frozenset(word for word in words.words_of(name) if words.is_copy(word))

    main = [name for name in loose if not words.is_beside(name)]
    found: dict[str, list[str]] = {name: [] for name in main}
    for name in loose:
        if words.is_beside(name):
            homes = [one for one in main if copy_of(one) == copy_of(name)]
            if len(homes) == 1:
                found[homes[0]].append(name)
            else:
                found[name] = []
    return found
