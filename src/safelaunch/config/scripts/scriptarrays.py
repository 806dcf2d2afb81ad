"""`#SBATCH --array` of a user's own script ▸ a sweep: one run for each task. A chain of jobs becomes one run."""

from __future__ import annotations

import re

from safelaunch.base.yaml.yamlnodes import ListNode, MappingNode, Node, Origin, plain, quoted
from safelaunch.config.sweeps import ARRAY_JOB, ARRAY_TASK, MOST_POINTS

_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::([1-9]\d{0,8}))?)?")   # sbatch(1), --array
_CHAIN = ("--array is left out: a chain of jobs is one run, which goes on in its next job by itself, until the "
          "training has ended (if a program reads " + ARRAY_TASK + ", name it in the script: that is a sweep)")
_SWEEP = ("--array is a sweep of {} runs, one for each " + ARRAY_TASK + " (docs/sweeps.md); " + ARRAY_JOB + " is the "
          "same number for all; one run alone: sweep=null{}")


def read_array(value: str, text: str, here: Origin) -> tuple[dict[str, Node], str]:
    """The keys of train.yaml that the option becomes, and what is to be said; raises ValueError for no array."""
    tasks, at_once = _parse(value)
    if at_once == 1 and not re.search(r"^\s*[^#\s].*SLURM_ARRAY_", text, re.MULTILINE):
        return {}, _CHAIN
    points = ListNode(tuple(quoted(str(task), here) for task in tasks), here)
    counts = {"COUNT": len(tasks), "MIN": min(tasks), "MAX": max(tasks), "STEP": _step(value)}
    env = {f"SLURM_ARRAY_TASK_{name}": quoted(str(count), here) for name, count in counts.items()}
    entries: dict[str, Node] = {"sweep": MappingNode({ARRAY_TASK: points}, here), "env": MappingNode(env, here)}
    if at_once is not None:
        entries["max_parallel"] = plain(str(at_once), here)
    return entries, _SWEEP.format(len(tasks), "" if at_once is None else " max_parallel=null")


def _step(value: str) -> int:
    """SLURM_ARRAY_TASK_STEP: the first one that is written, else 1 (22.05, measured)."""
    found = re.search(r":(\d{1,9})", value)
    return int(found[1]) if found else 1


def _parse(value: str) -> tuple[list[int], int | None]:
    """The numbers of "0-15%4", "1,3,8-16:4", in order, and how many may run at once."""
    listed, percent, limit = value.partition("%")
    tasks: set[int] = set()
    for part in listed.split(","):
        found = _PART.fullmatch(part)
        if found is None or (percent and not re.fullmatch(r"[1-9]\d{0,8}", limit)):
            raise ValueError(f"{value!r} is no array of tasks, such as 0-15%4")
        first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
        if last < first or (last - first) // step >= MOST_POINTS:
            raise ValueError(f"{value!r}: expected at most {MOST_POINTS} tasks, the first number the lower one")
        tasks.update(range(first, last + 1, step))
    if len(tasks) > MOST_POINTS:
        raise ValueError(f"{value!r}: expected at most {MOST_POINTS} tasks")
    return sorted(tasks), int(limit) if percent else None
