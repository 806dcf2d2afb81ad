"""python -m benchmarks.watch: what a tick of `safelaunch watch` takes with 1,000 runs, and what a day costs slurmctld.

squeue is a file that `cat` prints: its time is taken off, the reading of its answer is not. Folders lie on this
machine's disk; children are real.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure, render_table
from safelaunch.base.model import Event
from safelaunch.run.io import registry
from safelaunch.run.journal import render
from safelaunch.slurm import slurmtext
from safelaunch.slurm.io.slurm import Command, Result
from safelaunch.supervisor.io.world import World
from safelaunch.verbs.jobs import watch as verb
from safelaunch.watch.io.watcher import Watcher

RUNS = 1000
PROGRESS = 1440           # lines of a journal: a day of one a minute
TICKS = 15
MINUTE_S = 60.0
DAY = 24 * 60
CONFIG = {
    "name": "train", "cluster": "slurm", "command": "true", "setup": "", "env": {}, "run_dir": "",
    "slurm": {"nodes": 2}, "launch": {"with": "srun", "nproc_per_node": None, "tee": 3},
    "srun": {"wait": 60, "kill_on_bad_exit": 1, "extra": []},
    "resume": {"dir": None, "format": "auto", "args": "", "pattern": None}, "progress": {"step": "step (\\d+)"},
    "restart": {"max_restarts": 30, "max_without_progress": 3, "backoff": 60.0},
    "kill_switch": {"file": "control/kill", "grace": 900.0, "group": None, "signal": "SIGUSR2"},
    "preserve_site": {"for": 0.0, "when": [], "nodes": "suspects"},
}


class Clock(World):
    """A world whose minutes pass at once."""

    def __init__(self) -> None:
        super().__init__()
        self.at_s = 1000.0

    def now_s(self) -> float:
        """Monotonic seconds, as the benchmark says."""
        return self.at_s


class Stage:
    """RUNS registered runs in a folder, each with a job that runs and one that waits behind it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        self.dirs = [folder / "runs" / f"{number:04d}" for number in range(RUNS)]
        for number, run_dir in enumerate(self.dirs):
            _lay_out(run_dir, number)
            registry.register(run_dir, "train", f"{number:08x}", str(number))
        self.beat(range(RUNS))
        lines = (_lines(number) for number in range(RUNS))
        (folder / "squeue").write_text("".join(lines))
        self.calls: list[str] = []
        self.called_s: list[float] = []
        self.clock = Clock()
        self.clock.command = self._command  # type: ignore[method-assign]
        self.watcher = Watcher(self.clock, dict(os.environ), os.uname().nodename.split(".")[0], lambda *words: None)

    def _command(self, argv: Sequence[str], env: Mapping[str, str], deadline_s: float = 60.0,
                 cwd: str = "/") -> Command:
        self.calls.append(argv[0])
        self.called_s.append(time.monotonic())
        is_look = argv[0] == "squeue" and argv[-1] == f"--format={slurmtext.SQUEUE_FORMAT}"   # that before sbatch
        instead = ["true"] if is_look else _ANSWERS.get(argv[0], ["cat", str(self.folder / "squeue")])
        return Command(instead, dict(os.environ))

    def show(self, changed: Callable[[int], str]) -> None:
        """What squeue says from now on."""
        (self.folder / "squeue").write_text("".join(map(changed, range(RUNS))))

    def beat(self, numbers: range) -> None:
        """Publish a new pulse of these runs."""
        self.count += 1
        for number in numbers:
            draft = self.dirs[number] / ".pulse"
            draft.write_text(json.dumps({
                "v": 1, "count": self.count, "t": time.time(), "gen": 2, "host": "n0", "job": str(number),
                "state": "running", "attempt": 1, "step": self.count, "successor": str(RUNS + number), "guards": 2}))
            draft.rename(self.dirs[number] / "pulse.json")

    def tick_ms(self, after_s: float) -> float:
        """Milliseconds of one tick, without those of Slurm's commands."""
        self.clock.at_s += after_s
        slurm_s = 0.0
        start_s = time.perf_counter()
        asking = self.watcher.tick()
        result: Result | None = None
        while True:
            try:
                command = next(asking) if result is None else asking.send(result)
            except StopIteration:
                return (time.perf_counter() - start_s - slurm_s) * 1e3
            asked_s = time.perf_counter()
            result = command.wait()
            slurm_s += time.perf_counter() - asked_s


def measure() -> list[Figure]:
    """Milliseconds a tick, and calls a day."""
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_STATE_HOME"] = name
        stage = Stage(Path(name))
        first = stage.tick_ms(0.0)
        stage.watcher.memory.every_s = 1e9
        figures = [Figure("the first tick", "ms", (first,))]
        for title, change in _CHANGES.items():
            values = []
            for _ in range(TICKS if title != _FROZEN else 1):
                change(stage)
                values.append(stage.tick_ms(1.0))
            figures.append(Figure(title, "ms", tuple(values), "" if title == _FROZEN else "≤ 100 ms"))
        return [*figures, _calls_a_day(stage), *_calls_an_incident(stage)]


def _ask(stage: Stage) -> None:
    stage.beat(range(RUNS))
    stage.watcher.memory.asked_s = None


def _one_silent(stage: Stage) -> None:
    """Its journal is read as well."""
    stage.beat(range(1, RUNS))
    stage.watcher.memory.asked_s = None
    stage.watcher.memory.runs[str(stage.dirs[0])].moved_s = -1e9


def _all_silent(stage: Stage) -> None:
    """As when the cluster loses its filesystem: every journal is read."""
    stage.watcher.memory.asked_s = None
    for known in stage.watcher.memory.runs.values():
        known.moved_s = -1e9


_FROZEN = "… and all are silent: every journal is read"
_CHANGES: dict[str, Callable[[Stage], None]] = {
    f"a tick of {RUNS} runs: nothing has changed": lambda stage: None,
    "… ten pulses have moved": lambda stage: stage.beat(range(10)),
    "… all pulses have moved": lambda stage: stage.beat(range(RUNS)),
    "… and Slurm is asked, beside squeue": _ask,
    "… and one run is silent": _one_silent,
    _FROZEN: _all_silent,
}


def _calls_a_day(stage: Stage) -> Figure:
    stage.watcher.memory.every_s, stage.watcher.memory.asked_s = 1800.0, stage.clock.at_s
    stage.calls.clear()
    for _ in range(DAY):
        stage.clock.at_s += MINUTE_S
        for known in stage.watcher.memory.runs.values():
            known.moved_s = stage.clock.at_s
        if stage.watcher._is_due(stage.watcher.runs, stage.clock.at_s):
            stage.tick_ms(0.0)
    return Figure("calls of Slurm in a quiet day", "", (float(len(stage.calls)),), "≤ 48")


def _calls_an_incident(stage: Stage) -> list[Figure]:
    """From the first sign to the run that waits in the queue again, and the most calls within a second of that."""
    figures, most = [], 0
    for number, (title, broken) in enumerate(_INCIDENTS.items()):
        stage.calls.clear()
        stage.called_s.clear()
        healed = f"99999|PENDING|me|Priority||n/a||(null)|main|N/A|0:00|train.{number:08x}\n"
        for lines in (broken(number), *[broken(number) + healed] * (title == _LIMBO), healed):
            stage.show(partial(_lines_but, number, lines))
            _act(stage, number)
        figures.append(Figure(title, "", (float(len(stage.calls)),), "≤ 10"))
        most = max(most, *(sum(start <= at < start + 1.0 for at in stage.called_s) for start in stage.called_s))
    return [*figures, Figure("calls of Slurm within a second, at most", "", (float(most),), "≤ 2")]


def _lines_but(number: int, lines: str, at: int) -> str:
    return lines if at == number else _lines(at)


def _act(stage: Stage, number: int) -> None:
    """Minutes in which one run gives no pulse, until the watch has acted on it, or sees it wait; as the verb drives."""
    told: list[str] = []
    stage.watcher.tell = lambda kind, dir, text: told.append(f"{kind} {text}" * (dir == str(stage.dirs[number])))
    while not any(text.startswith("act ") or "is waiting to be scheduled" in text for text in told):
        stage.clock.at_s += MINUTE_S
        for run_dir, known in stage.watcher.memory.runs.items():
            known.moved_s = -1e9 if run_dir == str(stage.dirs[number]) else stage.clock.at_s
        if stage.watcher._is_due(stage.watcher.runs, stage.clock.at_s):
            verb.drive(stage.watcher)


_LIMBO = "calls of Slurm in an incident: a job without a script"
_INCIDENTS: dict[str, Callable[[int], str]] = {
    "calls of Slurm in an incident: a job that vanished": lambda number: "",
    _LIMBO: lambda number: _lines(number).splitlines(keepends=True)[0].replace("n[0-1]", "n1"),
}
_ANSWERS = {"sbatch": ["echo", "99999"], "sacct": ["false"], "sinfo": ["echo", "idle|n[0-9]"], "scontrol": ["true"],
            "scancel": ["true"]}


def _lay_out(run_dir: Path, number: int) -> None:
    for name in ("journal", "claims", "control"):
        (run_dir / name).mkdir(parents=True)
    meta = {"v": 1, "run_id": f"{number:08x}", "name": "train", "cwd": "/",
            "config": {**CONFIG, "run_dir": str(run_dir)}}
    (run_dir / "run.json").write_text(json.dumps(meta))
    (run_dir / "submit.env").write_bytes(b"PATH=/usr/bin:/bin")
    (run_dir / "claims" / "2").write_text("{}")
    events: list[tuple[str, dict[str, Any]]] = [("submitted", {"job": str(number)}),
              ("job_started", {"job": str(number), "nodes": ["n0", "n1"], "batch_host": "n0"}),
              ("attempt_started", {"attempt": 1, "job": str(number), "nodes": ["n0", "n1"]}),
              *(("progress", {"attempt": 1, "step": step}) for step in range(PROGRESS))]
    (run_dir / "journal" / "000002-n0-1.jsonl").write_bytes(b"".join(
        render(Event(float(seq), 2, seq, "n0", kind, data)) for seq, (kind, data) in enumerate(events)))


def _lines(number: int) -> str:
    name = f"train.{number:08x}"
    return (f"{number}|RUNNING|me|None|n[0-1]|n0||(null)|main|2026-11-21T20:51:56|7:27|{name}\n"
            f"{RUNS + number}|PENDING|me|Dependency||n/a||afterany:{number}(unfulfilled)|main|N/A|0:00|{name}\n")


if __name__ == "__main__":
    sys.stdout.write(render_table("watch: one tick", measure()))
