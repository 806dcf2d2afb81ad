"""The newest checkpoint that is whole, of any known format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from safelaunch.checkpoints import newest, tree, unknown
from safelaunch.checkpoints.formats import (
    dcp,
    deepspeed,
    hf,
    lightning,
    megatron,
    nanotron,
    nemo,
    orbax,
    pattern,
    safetensors,
    torchfile,
)
from safelaunch.checkpoints.model import (
    Candidate,
    Checkpoint,
    CheckpointTree,
    Format,
    FoundCheckpoints,
    JudgedCheckpoint,
    Skipped,
)

if TYPE_CHECKING:
    from safelaunch.extensions.pluginvalues import CheckpointFormat

# The formats, those with the strongest marks first: `auto` gives a path to the first that knows it.
# To add one: a file with list_candidates and judge, and a row here.
FORMATS: dict[str, Format] = {
    "megatron": Format(megatron.list_candidates, megatron.judge),
    "nemo": Format(nemo.list_candidates, nemo.judge),
    "nanotron": Format(nanotron.list_candidates, nanotron.judge),
    "lightning": Format(lightning.list_candidates, lightning.judge),
    "hf": Format(hf.list_candidates, hf.judge),
    "deepspeed": Format(deepspeed.list_candidates, deepspeed.judge),
    "orbax": Format(orbax.list_candidates, orbax.judge),
    "dcp": Format(dcp.list_candidates, dcp.judge),
    "safetensors": Format(safetensors.list_candidates, safetensors.judge),
    "torch": Format(torchfile.list_candidates, torchfile.judge),
}
# `auto` tries them all; `pattern` takes its row from the user.
NAMES = ("auto", *FORMATS, "pattern")
# Judging reads, and a folder may hold hundreds of checkpoints. Older ones serve when the newest proves corrupt although
# it looks whole.
MOST_WHOLE = 5
NO_PLUGINS: Mapping[str, CheckpointFormat] = {}


def choose(judged: Iterable[JudgedCheckpoint]) -> FoundCheckpoints:
    """The newest whole one of a survey, the other whole ones, and what was skipped."""
    told = tuple(judged)
    whole = [Checkpoint(one.path, one.step, one.format) for one in told if one.reason is None]
    skipped = tuple(Skipped(one.path, one.reason) for one in told if one.reason is not None)
    return FoundCheckpoints(whole[0] if whole else None, tuple(whole[1:]), skipped)


def survey(
    folder: CheckpointTree, format: str, pattern: str | None = None, most_whole: int = MOST_WHOLE,
    plugins: Mapping[str, CheckpointFormat] = NO_PLUGINS,
) -> tuple[JudgedCheckpoint, ...]:
    """Every candidate, the newest first (newest.py), judged; once `most_whole` are whole the older ones are left out.

    Nothing is asked of the clock: a file that is being written has an unfinished structure.
    Raises ValueError for a wrong ask, OSError when the folder itself cannot be read: unknown is not "none".
    """
    rows = {format: format_of_plugin(format, plugins[format])} if format in plugins else (
        _choose_formats(format, pattern))
    candidates = _list_all(folder, rows)
    if format == "auto" and not pattern:
        candidates += unknown.list_candidates(
            folder, {path for candidate in candidates for path in (candidate.path, *candidate.parts)})
    elif not candidates and format != "pattern":
        candidates = [replace(other, refused=f"of format {other.format}, and resume.format says {format}")
                      for other in _list_all(folder, FORMATS)]
    candidates = newest.sort(folder, candidates, tuple(FORMATS))
    judged: list[JudgedCheckpoint] = []
    whole = 0
    for candidate in candidates:
        if candidate.refused is None and whole >= most_whole:
            continue
        reason = candidate.refused or _judge(folder, rows[candidate.format], candidate)
        whole += reason is None
        changed_s = folder.mtime_s(candidate.path)
        step = newest.read_step(folder, candidate) if reason is None else candidate.step
        judged.append(JudgedCheckpoint(candidate.path, step, candidate.format, changed_s, reason))
    return tuple(judged)


def format_of_plugin(name: str, plugin: CheckpointFormat) -> Format:
    """A Format that guards against the plugin's exceptions: in `judge` a reason, in the search a ValueError."""
    def list_candidates(folder: CheckpointTree) -> tuple[Candidate, ...]:
        try:
            return tuple(replace(one, format=name) for one in plugin.candidates(folder))
        except OSError:
            raise
        except Exception as error:   # format_of_plugin code
            raise ValueError(f"the plugin {name} failed: {type(error).__name__}: {error}") from error

    def judge(folder: CheckpointTree, candidate: Candidate) -> str | None:
        try:
            reason = plugin.judge(folder, candidate)
        except OSError:
            raise
        except Exception as error:   # noqa: BLE001 - format_of_plugin code
            return f"the plugin {name} failed: {type(error).__name__}: {error}"
        return None if reason is None else str(reason)

    return Format(list_candidates, judge)


def _choose_formats(format: str, text: str | None) -> dict[str, Format]:
    """The rows to search by."""
    if format not in NAMES:
        raise ValueError(f'checkpoint format "{format}" is unknown; known: {", ".join(NAMES)}')
    if text and format in ("auto", "pattern"):
        return {"pattern": Format(partial(pattern.list_candidates, pattern=text), pattern.judge)}
    if format == "pattern":
        raise ValueError('checkpoint format "pattern" needs a pattern, such as "step_{step}.pt"')
    if text:
        raise ValueError(f'checkpoint format "{format}" takes no pattern; use format: pattern')
    return FORMATS if format == "auto" else {format: FORMATS[format]}


def _list_all(folder: CheckpointTree, rows: dict[str, Format]) -> list[Candidate]:
    """The candidates of all rows; what lies in a path of a stronger format belongs to that one.

    So does everything when the folder that is searched is a checkpoint itself.
    """
    found: list[Candidate] = []
    taken: set[str] = set()
    for row in rows.values():
        if "" in taken:
            break
        fresh = [candidate for candidate in row.candidates(folder) if not tree.is_within(candidate.path, taken)]
        found += fresh
        taken.update(candidate.path for candidate in fresh)
    return found


def _judge(folder: CheckpointTree, row: Format, candidate: Candidate) -> str | None:
    """What is wrong with the candidate; what cannot be read cannot be resumed from, whatever the cause."""
    try:
        return row.judge(folder, candidate)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
