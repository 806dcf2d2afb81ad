"""before_resize as a scenario wants it to go, and what must hold of attempts that have fewer nodes than the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.guards import Task
    from tests.simulation.sim import Sim
    from tests.simulation.training import Attempt

WORKS_S = 20.0       # a conversion
FIRST_STEP_S = 90    # hang.first_step, which bounds one
WAIT_S = 40          # restart.wait_for_nodes
MOST_HOOKS = 3


class Conversions:
    """What before_resize has written: whole or half."""

    def __init__(self, sim: Sim) -> None:
        self._sim = sim
        self._whole: dict[str, int] = {}              # output → the nodes that it is for
        self._sizes: dict[int, int] = {}              # step → the nodes that have saved it
        self._tries: dict[tuple[str, int], int] = {}  # checkpoint and nodes → how often it was converted

    def saves(self, step: int, nodes: int) -> None:
        """An attempt of so many nodes has written a checkpoint."""
        self._sizes[step] = nodes

    def launched(self, attempt: Attempt) -> None:
        """Nothing trains on too few nodes, or from a checkpoint that is not for its number of nodes."""
        sim, scenario, count = self._sim, self._sim.scenario, len(attempt.nodes)
        path = str(attempt.facts.get("resume_path") or "")
        if attempt.resize is not None:
            point = (path, int(attempt.resize["to"]))
            self._tries[point] = self._tries.get(point, 0) + 1
            if self._tries[point] > MOST_HOOKS:
                sim.violate(f"{path} is converted for {point[1]} nodes again and again")
            if attempt.resize["output"] in self._whole:
                sim.violate(f"attempt {attempt.number} writes to {attempt.resize['output']}, which is there")
            return
        if not (scenario.min_nodes or scenario.nodes) <= count <= scenario.nodes:
            sim.violate(f"attempt {attempt.number} trains on {count} nodes, and the least is {scenario.min_nodes}")
        if not scenario.before_resize or not path:
            return
        if ".resized/" in path and path not in self._whole:
            sim.violate(f"attempt {attempt.number} trains on {path}, which is half converted")
        size = self._whole.get(path, self._sizes.get(attempt.told_step, scenario.nodes))
        if size != count:
            sim.violate(f"attempt {attempt.number} trains on {count} nodes from a checkpoint that is for {size}")

    def removed(self, paths: Sequence[str]) -> None:
        """Outputs are gone; nobody may train from one then."""
        for path in paths:
            used = [attempt.number for attempt in self._sim.attempts if attempt.facts.get("resume_path") == path
                    and any(task.rank in ("loading", "training") and not task.is_doomed for task in attempt.tasks)]
            if used:
                self._sim.violate(f"{path} is removed while attempts {used} use it")
            size = self._whole.pop(path, None)
            source = next((str(attempt.facts.get("resume_path")) for attempt in self._sim.attempts
                           if attempt.resize is not None and attempt.resize["output"] == path), "")
            if size is not None:
                self._tries.pop((source, size), None)   # it may be converted again

    def begins(self, task: Task) -> None:
        """The hook runs."""
        how = self._sim.scenario.before_resize
        if how == "dies" and not any(tries > 1 for tries in self._tries.values()):
            self._sim.clock.after(WORKS_S / 2, lambda: self._ends(task, 137, 9))
        elif how != "hangs":
            self._sim.clock.after(WORKS_S, lambda: self._ends(task, 1 if how == "fails" else 0, None))

    def _ends(self, task: Task, code: int, signal: int | None) -> None:
        if task.rank != "training":
            return
        if not task.is_training or task.host.mount.is_frozen:
            self._sim.clock.after(1.0, lambda: self._ends(task, code, signal))
            return
        resize = task.attempt.resize
        assert resize is not None
        if code == 0:
            self._whole[resize["output"]] = int(resize["to"])
        task.rank_ends(code, signal)
