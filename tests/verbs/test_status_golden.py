"""`status --json` and the rows for people, byte for byte: recorded runs (tests/verbs/golden/status.txt).

SAFELAUNCH_GOLDEN=write writes the file anew: then say in the changelog what has changed.
"""

from __future__ import annotations

import json
import os
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from safelaunch.base.io import owners
from safelaunch.base.jsonform import to_json
from safelaunch.run.io import registry, runfolder
from safelaunch.slurm.slurmtext import QueuedJob
from safelaunch.status.speech import SchedulerAnswer
from safelaunch.verbs.overview import runlist
from safelaunch.verbs.overview.overview import brief, overview
from safelaunch.verbs.report import monthfacts, reportfacts
from safelaunch.verbs.status import sweepruns
from safelaunch.verbs.status.status import plain
from tests.handmade import YAML, Made, make_run
from tests.pure.checkpoints.checkpoint_files import torch_file
from tests.verbs.test_old_run import PACKED

GOLDEN = Path(__file__).parent / "golden" / "status.txt"
NOW = 1_800_000_000.0
PACE: dict[str, Any] = {"attempt": 1, "step": 60, "level_s": 111.0, "noise": 0.003, "source": "log", "normal_s": 105.2}
STEPS = b"".join(b" iteration  %d/ 900 | elapsed time per iteration (ms): %d.0 | lm loss: 2.5E+00 | \n" % pair
                 for pair in ((88, 12000), (89, 12100), (90, 15500))) + b"tps: 7,282\n"
RUNNING = SchedulerAnswer((QueuedJob("12", "RUNNING", "alice", "bloom.1a2b3c4d", "None", "n[0-3]", 7200.0),), "", NOW)
BOTH = SchedulerAnswer((*(RUNNING.jobs or ()), QueuedJob("13", "PENDING", "alice", "bloom.1a2b3c4d", "Dependency", "",
                                                         None, "2027-01-15T20:00:00")))
NONE, SILENT = SchedulerAnswer(()), SchedulerAnswer(None, "squeue: timed out")


def queued(made: Made) -> None:
    made.submitted()


def running(made: Made) -> None:
    made.running(resume_step=40, ago_s=600)
    made.event("decision", row="launch", why="first attempt", ago_s=600)
    for minute in range(8):
        made.event("progress", attempt=1, step=41 + 6 * minute, at_t=NOW - 480 + 60 * minute, ago_s=480 - 60 * minute)
    made.event("slurm", version="22.05.8")
    made.event("via_chosen", via="successor")
    made.event("standby_started", node="n1")
    made.event("submitted", job="13", successor_of="12")
    made.pulse(3.0, hang_t=NOW + 900, step=90, step_t=NOW - 5, late_t=NOW + 500, phase="step")
    made.log(1, STEPS)


def silent(made: Made) -> None:
    running(made)
    made.pulse(3.0, step=90, step_t=NOW - 300, late_t=NOW - 200, phase="evaluation")


def in_trouble(made: Made) -> None:
    """Warnings of all kinds, and three attempts."""
    made.running(ago_s=900)
    made.event("progress", attempt=1, step=60, ago_s=700)
    made.event("slower", **PACE, since_step=51, from_s=105.2, confidence=0.9999, total=400, ago_s=690)
    made.event("odd_figure", attempt=1, kind="loss_spike", step=60, value="9.5", usual=2.5, line="x", ago_s=680)
    made.event("verdict", attempt=1, category="oom", summary="CUDA out of memory", node="n1", confidence=0.8,
               suspects=["n1"], evidence=["RuntimeError: CUDA out of memory"])
    made.failed(ago_s=600)
    made.attempt(2, ago_s=550, resume_step=40)
    made.event("nodes_benched", job="12", attempt=1, drop_t=round(NOW - 690, 3), nodes=["n0", "n1"],
               slow={"n1": "memory: 2.5% slower"}, why="slow: n1", ago_s=540)
    made.event("swap_judged", attempt=2, nodes=["n1"], won=False, level_s=111.0, from_s=105.2, to_s=111.0, ago_s=530)
    made.event("progress", attempt=2, step=59, first=41, ago_s=300)
    made.event("attempt_ended", attempt=2, how="lost", exit_code=None, ago_s=200)
    made.attempt(3, ago_s=100, nodes=["n0", "n2", "n3"], resume_step=40)
    made.event("lost_progress", attempt=3, step=1, resume_step=40, sure=False, why="it counts 1 … 3", ago_s=50)
    made.event("odd_figure", attempt=3, kind="nan", step=44, value="nan", usual=None, line="x", ago_s=20)
    made.event("node_suspected", node="n1", why="its guard was silent")
    made.event("node_excluded", node="n1", why="two failures", until=NOW + 3600)
    made.event("node_left_out", node="n3", why="the run needs it")
    made.event("local_folder_taken", node="n0", path="/tmp/safelaunch-1", owner="eve")
    made.event("unknown_words", job="12", said="error: *** GONE ***")
    made.event("slurm", version="99.1")
    made.event("successor_cancelled", job="13")
    made.log(3, b"[n0:0]:step 44 loss nan\n")
    for name, ago_s in (("hold", 40), ("checkpoint", 30)):
        (made.dir / "control" / name).write_text("why\n")
        os.utime(made.dir / "control" / name, (NOW - ago_s, NOW - ago_s))
    (made.dir / "journal" / "000009-n9-1.jsonl").write_bytes(b"\xff{garbled\n")


def saving(made: Made) -> None:
    """Its newest checkpoint is half, and the one before it is whole."""
    running(made)
    folder = made.dir.parent / "checkpoints"
    folder.mkdir()
    for step in (60, 80, 90):
        (folder / f"step_{step}.pt").write_bytes(torch_file()[:-40 if step == 90 else None])
        os.utime(folder / f"step_{step}.pt", (NOW - 200, NOW - 200))


def resizing(made: Made) -> None:
    made.submitted()
    made.started()
    made.attempt(nodes=["n0"], resize={"from": 4, "to": 1, "output": "/out"}, ago_s=60)
    made.pulse(400.0)


def unread(made: Made) -> None:
    made.running(ago_s=500)
    made.event("steps_unread", attempt=1, line="loss=0.5")


def kept(made: Made) -> None:
    made.running(ago_s=500)
    made.failed(ago_s=100)
    made.event("decision", row="back_off", why="waits 60 s", until=NOW + 60, attempt=1)
    made.event("preserved", until=NOW + 3600, nodes=["n0"])


def restarting(made: Made) -> None:
    made.running(ago_s=500)
    made.failed(ago_s=100)
    made.event("decision", row="back_off", why="waits 60 s", until=NOW + 60, attempt=1)


def ended_early(made: Made) -> None:
    made.running(ago_s=500)
    made.event("checkpoint", step=80, attempt=1)
    made.event("attempt_ended", attempt=1, how="completed", exit_code=0, reach={
        "unit": "step", "step": 47, "total": 400, "early": True, "lines": ["step 47/400"]})
    made.event("completed", exit_code=0, why="attempt 1 ended with exit code 0")


def gave_up(made: Made) -> None:
    made.running(ago_s=500)
    made.failed(ago_s=400)
    made.event("gave_up", exit_code=11, why="no failure is left")


def alone(made: Made) -> None:
    made.running(ago_s=500)
    made.event("ended_alone", gen=1, job="12", exit_code=1)


RUNS: dict[str, tuple[Callable[[Made], None], SchedulerAnswer]] = {
    "queued": (queued, NONE), "running": (running, BOTH), "silent": (silent, RUNNING), "in trouble": (in_trouble, BOTH),
    "saving": (saving, RUNNING),
    "resizing": (resizing, SILENT), "unread": (unread, RUNNING), "kept": (kept, RUNNING),
    "restarting": (restarting, RUNNING), "ended early": (ended_early, NONE), "gave up": (gave_up, NONE),
    "alone": (alone, NONE)}


def pages(folder: Path) -> Iterator[str]:
    """What is told of each run, with the folder's name taken out."""
    for title, (play, answer) in RUNS.items():
        more = (f"resume.dir={folder}/checkpoints", "resume.by=training") if title == "saving" else ()
        made = make_run(folder / title.replace(" ", "-"), YAML, "1a2b3c4d", *more)
        made.now = NOW
        registry.register(made.dir, title, "1a2b3c4d", "12")
        play(made)
        for path in made.dir.glob("attempts/*/main.log"):
            os.utime(path, (NOW - 5, NOW - 5))
        yield from of_run(title, made.run, answer, NOW)
    yield from of_all(BOTH)
    with tarfile.open(PACKED) as packed:
        packed.extractall(folder, filter="data") if hasattr(tarfile, "data_filter") else packed.extractall(folder)
    yield from of_run("recorded by an old version", runfolder.load(folder / "runs" / "drill"), NONE, NOW)


def of_all(answer: SchedulerAnswer) -> Iterator[str]:
    """All runs together: the table, a month, and a sweep of them."""
    for title, found in (
        ("all runs", runlist.as_json(runlist.collect(True, False, lambda _: answer))),
        ("a month", monthfacts.gather(NOW - 1e6, NOW, False).to_json()),
        ("a sweep", sweepruns.status([one._replace(sweep={"id": "c0ffee00", "name": "many", "point": number})
                                      for number, one in enumerate(registry.listed(), 1)], lambda _: answer).to_json()),
    ):
        yield f"== {title}"
        yield json.dumps(found, ensure_ascii=False)


def of_run(title: str, run: runfolder.Run, answer: SchedulerAnswer, now: float) -> Iterator[str]:
    status = overview(run, answer, now)
    yield f"== {title}"
    yield json.dumps(status.to_json(), ensure_ascii=False, allow_nan=False)
    yield plain(status)
    yield json.dumps(to_json(brief(run, answer, now)._replace(owner="me")), ensure_ascii=False)
    report = reportfacts.gather(run, now).public.to_json()
    yield json.dumps({**report, "config": [], "script": None}, ensure_ascii=False)


def test_the_pages_of_recorded_runs_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(time, "time", lambda: NOW)
    time.tzset()
    try:
        told = "\n".join(pages(tmp_path)).replace(str(tmp_path), "/here") + "\n"
        for words in ('{} touched', '{} wants', '"who": "{}"', '"owner": "{}"'):   # whoever runs the tests
            told = told.replace(words.format(owners.name_of(os.geteuid())), words.format("somebody"))
    finally:
        monkeypatch.undo()
        time.tzset()
    if os.environ.get("SAFELAUNCH_GOLDEN") == "write":
        GOLDEN.write_text(told)
    assert told.splitlines() == GOLDEN.read_text().splitlines()
