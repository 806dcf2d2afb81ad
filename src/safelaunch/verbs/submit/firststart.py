"""Where a run that is submitted now will start, for `submit`: from which checkpoint, and which ones are skipped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from safelaunch.checkpoints.model import JudgedCheckpoint
from safelaunch.errors import RunFolderError, UsageError
from safelaunch.run.plan import Plan
from safelaunch.verbs.common import resumepoints, talk
from safelaunch.verbs.common.resumepoints import CheckpointPlace

MOST_SHOWN = 3


@dataclass(frozen=True)
class FirstStart:
    """The lines for people, and the same for programs."""

    lines: tuple[str, ...]
    public: dict[str, object]


def look(plan: Plan, cwd: str) -> FirstStart:
    """Where the first attempt starts; unknown if the folder cannot be read, or does not answer in time."""
    place = CheckpointPlace(str(Path(cwd, dict(plan.sbatch).get("chdir") or "", plan.resume.dir or "")),
                            plan.resume.format,
                            plan.resume.pattern)
    if plan.resume.step is not None:
        return _from_step(place, plan.resume.step)
    try:
        judged = resumepoints.look(place, most_whole=1).judged
    except RunFolderError as error:
        line = f"where it starts is not known: {talk.clean(error.message)}"
        return FirstStart((line,), _public(place, None, (), error.message))
    best = next((one for one in judged if one.reason is None), None)
    skipped = judged[:judged.index(best)] if best is not None else judged
    lines = (_sentence(plan, place, best, bool(skipped)), *_skipped(skipped, place))
    return FirstStart(lines, _public(place, best, skipped))


def _from_step(place: CheckpointPlace, step: int) -> FirstStart:
    """Where it starts by resume.step; what the submission has not refused may have gone since."""
    try:
        best, behind = resumepoints.of_step(resumepoints.look(place, resumepoints.MOST_ALL), step)
    except (RunFolderError, UsageError) as error:
        return FirstStart((f"where it starts is not known: {talk.clean(error.message)}",),
                          _public(place, None, (), error.message))
    lines = [f"resumes from {talk.clean(best.path)}, step {step} (resume.step)"]
    lines += [f"{behind} behind it: kept, and not used unless the training writes them again"] if behind else []
    return FirstStart(tuple(lines), _public(place, best, ()))


def _sentence(plan: Plan, place: CheckpointPlace, best: JudgedCheckpoint | None, has_skipped: bool) -> str:
    if best is None:
        kind = "complete checkpoint" if has_skipped else "checkpoint yet"
        return f"no {kind} in {talk.clean(place.folder)}: starts from the beginning"
    step = f", step {best.step}" if best.step is not None else ""
    if plan.resume.by == "training":
        return f"the training is to go on by itself from {talk.clean(best.path)}{step}"
    return f"resumes from {talk.clean(best.path)}{step}"


def _skipped(skipped: Sequence[JudgedCheckpoint], place: CheckpointPlace) -> list[str]:
    if not skipped:
        return []
    count = "1 checkpoint" if len(skipped) == 1 else f"{len(skipped)} checkpoints"
    lines = [f"{count} skipped:"]
    lines += [f"  {talk.clean(one.path)}: {talk.clean(one.reason or '')}" for one in skipped[:MOST_SHOWN]]
    if len(skipped) > MOST_SHOWN:
        lines.append(f"  all of them: safelaunch checkpoints {talk.clean(place.folder)}")
    return lines


def _public(place: CheckpointPlace, best: JudgedCheckpoint | None, skipped: Sequence[JudgedCheckpoint],
            trouble: str = "") -> dict[str, object]:
    return {"dir": place.folder, "path": best.path if best else None, "step": best.step if best else None,
            "skipped": [{"path": one.path, "reason": one.reason} for one in skipped], "trouble": trouble}
