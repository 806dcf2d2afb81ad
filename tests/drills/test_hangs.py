"""Trainings that hang: noticed, looked at, ended by two witnesses, restarted; or waited for, where that is wiser."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from safelaunch.guard.io.control import STANDBY_TASK
from safelaunch.node.guard.link import Link
from safelaunch.sandbox.cluster import Sandbox
from tests import frozen
from tests.drills.proofs import check_losses, in_long, long_only
from tests.frozen import FuseMount, LoopMount
from tests.localruns import LocalRun, SubmitLocal
from tests.runs import Drill, Installation, Submitter, comm_of, environ_of
from tests.sandboxes import make_workdir
from tests.torchbin import make_torch_bin, needs_torch
from tests.trainers.stepping import losses_until

SHORT_FREEZE_S, LONG_FREEZE_S = 35.0, 600.0   # longer than two leases, and than a new standby takes
GAP_S = 2.0
LISTEN_S = 0.02
GLOO = """\
import datetime, os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(hours=1))
rank, is_first = dist.get_rank(), os.environ["SAFELAUNCH_ATTEMPT"] == "1"
def evaluate():
    time.sleep(3600)
def train_step(step):
    if is_first and step == 20 and rank == 3:
        evaluate()   # which the others skip
    dist.all_reduce(torch.ones(4))
    if rank == 0:
        print(f"step {step} loss 1.0 rank 0", flush=True)
    time.sleep(0.1)
for step in range(1, 41):
    train_step(step)
"""


def looks(drill: Drill, attempt: int = 1) -> list[dict[str, Any]]:
    """What each look at the ranks of an attempt has found, oldest first."""
    folder = drill.run_dir / "attempts" / f"{attempt:04d}" / "stacks"
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*/verdict.json"))]


def rows(drill: Drill) -> list[str]:
    """The rows of all decisions so far."""
    return [str(event.data["row"]) for event in drill.events("decision")]


# --- ended and restarted ---------------------------------------------------------------------------------------------


def test_training_that_hangs_is_seen_by_its_silence_and_its_stacks_and_goes_on(
    sandbox: Sandbox, submit: Submitter
) -> None:
    drill = submit(sandbox)("--steps 150 --step-time 0.1 --save-every 10 --lockstep sync --hang-at 110 --die-rank 2",
                            overrides=("hang.no_progress=15s",))
    drill.wait_step(109, timeout_s=90)
    found = drill.wait_event("verdict", timeout_s=240)

    assert found.data["category"] == "hang", drill.story()
    assert found.data["summary"].startswith("rank 2 on n1 sleeps in "), "the others look for its file, each 2 ms"
    state = drill.wait_end(300)
    assert state.ended and state.ended.how == "completed", drill.story()
    assert drill.losses() == losses_until(150)
    assert len(looks(drill)) >= 2, "two looks agree before anything is ended"
    assert drill.events("node_suspected") == [], "code is to blame; whose ranks end first is chance"


def test_stopped_rank_is_named_ended_and_the_training_goes_on(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)("--steps 120 --step-time 0.1 --save-every 10 --lockstep tcp",
                            overrides=("hang.no_progress=15s",))
    drill.wait_step(60, timeout_s=120)
    stopped = drill.ranks()[-1]
    os.kill(stopped, signal.SIGSTOP)
    found = drill.wait_event("verdict", timeout_s=240)

    assert found.data["category"] == "hang" and "stopped" in found.data["summary"], drill.story()
    assert looks(drill)[-1]["verdict"]["odd"][0]["pid"] == stopped
    state = drill.wait_end(240)
    assert state.ended and state.ended.how == "completed" and drill.losses() == losses_until(120), drill.story()
    assert not Path(f"/proc/{stopped}").exists()


@needs_torch
@pytest.mark.torch
def test_deadlock_in_a_collective_of_a_real_torchrun_job_is_ended_and_why_tells_who_skipped_it(
    sandbox: Sandbox, submit: Submitter, installation: Installation
) -> None:
    work = make_workdir(sandbox)
    (work / "train.py").write_text(GLOO)
    bin_dir = make_torch_bin(work / "bin", installation)
    drill = submit(sandbox)(
        command=f"python3 -u {work}/train.py", nodes=2, tasks=1, folder=work,
        extra=f"setup: export PATH={bin_dir}:$PATH\nenv: {{GLOO_SOCKET_IFNAME: lo, OMP_NUM_THREADS: '1'}}\n",
        overrides=("hang.no_progress=15s", "launch.with=torchrun", "launch.nproc_per_node=2", "restart.max_restarts=0"))

    found = drill.wait_event("verdict", timeout_s=240)
    state = drill.wait_end(240)

    assert found.data["category"] == "hang" and "evaluate" in found.data["summary"], drill.story()
    last = looks(drill)[-1]
    assert (last["verdict"]["kind"], [odd["rank"] for odd in last["verdict"]["odd"]]) == ("deadlock", [3])
    assert last["headline"].startswith("3 ranks: all_reduce ← train_step")
    assert state.ended and state.ended.how == "gave_up" and len(state.attempts) == 1, drill.story()
    said = drill.as_user("why", str(drill.run_dir), "--attempt", "1").stdout
    assert "evaluate" in said and "rank 3" in said, said


def test_limbo_of_an_srun_whose_ranks_have_gone_does_not_hold_the_run(sandbox: Sandbox, submit: Submitter) -> None:
    drill = submit(sandbox)("--steps 100 --step-time 0.1 --save-every 10")
    drill.wait_step(30, timeout_s=90)
    sruns = [pid for pid in drill.pids("srun") if comm_of(pid) == "srun" and b"SAFELAUNCH_MARK=" in environ_of(pid)]
    assert sruns, drill.story()
    for pid in sruns:
        os.kill(pid, signal.SIGSTOP)   # alive for Slurm and for everybody who looks at the job
    for pid in drill.ranks():
        with suppress(ProcessLookupError):   # with the first one's end its guard may end another
            drill.kill(pid)

    drill.wait_event("attempt_started", count=2, timeout_s=120)
    state = drill.wait_end(240)

    assert state.ended and state.ended.how == "completed", drill.story()
    check_losses(drill, 100, has_lost_log_end=True)   # a stopped srun keeps what it has read
    drill.wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in sruns), 60, "the stopped srun was left")


@pytest.fixture
def hung(submit_local: SubmitLocal) -> Callable[[str], LocalRun]:
    """`hung(then)`: a local run whose rank stands still at step 40 of its first attempt, with this `hang.then`."""
    def go(then: str) -> LocalRun:
        return submit_local("--steps 80 --step-time 0.05 --save-every 10 --hang-at 40", "hang.no_progress=5s",
                            f"hang.then={then}")
    return go


def test_hang_that_people_want_to_look_at_is_kept_until_they_release_it(hung: Callable[[str], LocalRun]) -> None:
    run = hung("preserve")
    run.wait_for(lambda: run.events("preserved"), 240, "nothing was preserved")
    (rank,) = run.ranks()
    seen = json.loads(run.type("stacks", "--json").stdout)

    released = run.type("release")
    run.wait_for(lambda: run.state().ended, 240, "the run did not go on")

    assert [group["representative"]["pid"] for group in seen["groups"]] == [rank]
    assert released.returncode == 0 and not Path(f"/proc/{rank}").exists()
    assert run.wait_end().how == "completed" and run.losses() == losses_until(80)


def test_hang_that_is_only_to_be_told_is_told_and_left_alone(hung: Callable[[str], LocalRun]) -> None:
    run = hung("notify")
    run.wait_for(lambda: "hang.then is notify" in run.story(), 240, "nothing was told")
    assert len(run.ranks()) == 1 and not run.events("attempt_ended")
    run.type("stop", "--now")
    assert run.wait_end().how == "stopped"


# --- a frozen filesystem ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("freezable", [in_long("fsfreeze"), "stopped-fuse"], indirect=True)
def test_training_asleep_on_a_frozen_filesystem_is_waited_for_and_goes_on_in_the_same_attempt(
    sandbox: Sandbox, submit: Submitter, freezable: LoopMount | FuseMount
) -> None:
    drill = submit(sandbox)("--steps 120 --step-time 0.1 --save-every 1000 --lockstep tcp "
                            f"--stamp-dir {freezable.path}/stamps", overrides=("hang.no_progress=10s",))
    drill.wait_step(50, timeout_s=90)
    freezable.freeze()
    drill.wait_for(lambda: "frozen_storage" in rows(drill), 240, "the filesystem was not found")
    time.sleep(10)   # long enough to end the attempt, if it were to be
    freezable.thaw()
    state = drill.wait_end(240)

    assert state.ended and state.ended.how == "completed" and len(state.attempts) == 1, drill.story()
    assert drill.losses() == losses_until(120)
    found = [look["verdict"] for look in looks(drill) if look["verdict"]["kind"] == "storage"]
    assert found and str(freezable.path) in found[0]["summary"], looks(drill)
    assert "thaw" in rows(drill)


class Pulse:
    """What a standby hears of a supervisor: when each ping came."""

    def __init__(self, drill: Drill) -> None:
        said = json.loads(drill.local_dirs_files("control.json")[0].read_text())
        self.times_s: list[float] = []
        self.stalled_s = 0.0   # the longest time that this listener itself was kept from listening
        self._is_over = threading.Event()
        self._link = Link(f"127.0.0.1:{said['port']}", None, said["token"],
                          {"node": "observer", "task": STANDBY_TASK, "attempt": 0, "role": "standby"})
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        looked_s = time.monotonic()
        while not self._is_over.wait(LISTEN_S):
            before_s, looked_s = looked_s, time.monotonic()
            self.stalled_s = max(self.stalled_s, looked_s - before_s - LISTEN_S)
            for message in self._link.messages(time.monotonic()):
                if message.get("do") == "ping":
                    self.times_s.append(time.monotonic())
                    self._link.say({"ev": "pong"})
        self._link.close()

    def end(self) -> float:
        """The longest gap between two pings, in seconds."""
        self._is_over.set()
        self._thread.join()
        return max(later - sooner for sooner, later in itertools.pairwise(self.times_s))


@pytest.fixture
def listen() -> Iterator[Callable[[Drill], Pulse]]:
    """`listen(drill)`: a Pulse, which ends with the test."""
    pulses: list[Pulse] = []

    def go(drill: Drill) -> Pulse:
        pulses.append(Pulse(drill))
        return pulses[-1]

    yield go
    for pulse in pulses:
        pulse.end()


@pytest.mark.parametrize("freezable", ["fsfreeze", in_long("stopped-fuse")], indirect=True)
@pytest.mark.parametrize(
    "freeze_s",
    [pytest.param(SHORT_FREEZE_S, id="35 seconds"), pytest.param(LONG_FREEZE_S, id="ten minutes", marks=long_only)])
def test_supervisor_is_never_stuck_while_its_run_folder_is_frozen(
    sandbox: Sandbox, submit: Submitter, freezable: LoopMount | FuseMount, listen: Callable[[Drill], Pulse],
    freeze_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frozen, "MAX_FROZEN_S", 2 * freeze_s)
    steps = int((freeze_s + 25) / 0.2)
    drill = submit(sandbox)(f"--steps {steps} --step-time 0.2 --save-every 1000000",
                            overrides=(f"run_dir={freezable.path}/drill",))
    drill.wait_step(20, timeout_s=90)
    pulse = listen(drill)
    drill.wait_for(lambda: len(pulse.times_s) > 3, 60, "no ping came")

    freezable.freeze()
    time.sleep(freeze_s)   # how long it is frozen is the fault
    freezable.thaw()
    longest_s = pulse.end()
    state = drill.wait_end(300)

    assert len(pulse.times_s) > freeze_s / GAP_S
    heard = f"longest gap {longest_s:.2f} s in {freeze_s:.0f} s, the listener's own {pulse.stalled_s:.2f} s"
    assert longest_s - pulse.stalled_s <= GAP_S, heard
    assert state.ended and state.ended.how == "completed" and len(state.attempts) == 1, drill.story()
    assert drill.losses() == losses_until(steps), "spooled on the node's own disk, and merged after the thaw"
    print(heard)
