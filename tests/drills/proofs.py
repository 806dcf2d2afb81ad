"""What every drill proves of its run: one writer at any time, a named end, and nothing of it left anywhere.

Each drill runs once, or three times under SAFELAUNCH_LONG=1. With SAFELAUNCH_DRILL_TIMES=FILE each measured time is
appended there, a JSON object a line.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from safelaunch.sandbox.cluster import Sandbox
from safelaunch.sandbox.namespaces import command_name
from tests.runs import Drill
from tests.trainers.stepping import losses_until

IS_LONG = os.environ.get("SAFELAUNCH_LONG") == "1"
rounds = pytest.mark.parametrize("turn", range(3 if IS_LONG else 1))
long_only = pytest.mark.skipif(not IS_LONG, reason="minutes long; run with SAFELAUNCH_LONG=1")


def in_long(*values: object, id: str | None = None) -> ParameterSet:
    """A variant of a drill for the long form alone: another one stays in the short form."""
    return pytest.param(*values, id=id, marks=long_only)


silences = pytest.mark.parametrize("silent", [False, True], ids=["killed", "silent"])
# Ranks wait for each other each step, as a collective does; `last` says when the training is to end.
FLAGS = "--steps 100000 --step-time 0.05 --save-every 10 --lockstep sync --stamp-dir stamps --until last"
AHEAD = 20       # steps from now to the end
LEAVE_S = 60.0   # for what an ended run leaves behind: KillWait (30 s), and a guard's last words


def crash(sandbox: Sandbox, node: str, silent: bool = False) -> float:
    """A node loses its power, or falls silent; when (epoch s)."""
    sandbox.crash(node, silent=silent)
    return time.time()


# --- when it ran --------------------------------------------------------------------------------------------------


def stamps(drill: Drill) -> dict[int, list[tuple[int, str]]]:
    """attempt → (time in ns, rank's file) of every step of every rank, in order of time."""
    found: dict[int, list[tuple[int, str]]] = {}
    for path in (drill.folder / "stamps").glob("rank_*"):
        for line in path.read_text().splitlines():
            words = line.split()
            if len(words) == 3:   # a rank killed in its write leaves less
                found.setdefault(int(words[1]), []).append((int(words[0]), path.name))
    return {attempt: sorted(rows) for attempt, rows in sorted(found.items())}


def check_one_writer(drill: Drill) -> None:
    """Fail where a rank of an attempt made a step after any rank of a later attempt had made its first one."""
    for (sooner, before), (later, after) in itertools.combinations(stamps(drill).items(), 2):
        overlap_s = (before[-1][0] - after[0][0]) / 1e9
        assert overlap_s < 0, (f"two writers for {overlap_s:.2f} s: attempt {sooner} ({before[-1][1]}) wrote after "
                               f"attempt {later} ({after[0][1]}) had begun\n{drill.story()}")


def running_again_s(drill: Drill, since_t: float, attempt: int, what: str) -> float:
    """Seconds from the fault to the first step of an attempt; noted under the name `what`."""
    drill.wait_for(lambda: attempt in stamps(drill), 60, f"attempt {attempt} made no step")
    seconds = stamps(drill)[attempt][0][0] / 1e9 - since_t
    note(drill, what, seconds)
    return seconds


def note(drill: Drill, what: str, seconds: float) -> None:
    """Keep a measured time, with the machine's load."""
    drill.noise.append(f"{what}: {seconds:.1f} s")
    if file := os.environ.get("SAFELAUNCH_DRILL_TIMES"):
        row = {"drill": os.environ.get("PYTEST_CURRENT_TEST", "").split(" ")[0], "what": what,
               "s": round(seconds, 2), "load": round(os.getloadavg()[0], 1)}
        with Path(file).open("a") as out:
            out.write(json.dumps(row) + "\n")


# --- how it ends --------------------------------------------------------------------------------------------------


def wait_standby(drill: Drill) -> str:
    """The node of the standby, once it stands by."""
    return str(drill.wait_event("standby_started", timeout_s=60).data["node"])


def role_on(drill: Drill, node: str) -> str:
    """What the supervisor on a node has become: leader or standby; "" where it never changed."""
    roles = [path for path in drill.local_dirs_files("role") if path.parent.name.endswith(f"-{node}")]
    return roles[-1].read_text().strip() if roles else ""


def finish(drill: Drill) -> int:
    """Tell the training to end some steps from now; the last step, once its ranks have said which."""
    tell_last(drill.folder, max(drill.steps(), default=0) + AHEAD)
    agreed = drill.folder / "last.agreed"   # the log tells late how far they are
    drill.wait_for(agreed.exists, 180, "no rank was told its last step")
    return int(agreed.read_text())


def tell_last(folder: Path, step: int) -> None:
    """Tell a training that runs `--until last` in this folder its last step; it takes a later one if it is beyond."""
    draft = folder / "draft"
    draft.write_text(str(step))
    draft.chmod(0o644)
    draft.rename(folder / "last")


def check_completes(drill: Drill, timeout_s: float = 60.0, *, has_lost_log_end: bool = False) -> None:
    """The training ends when told to, every step of it right, and nothing is left of the run."""
    last = finish(drill)
    state = drill.wait_end(timeout_s)
    assert state.ended and (state.ended.how, state.ended.exit_code) == ("completed", 0), drill.story()
    check_losses(drill, last, has_lost_log_end=has_lost_log_end)
    check_nothing_left(drill)


def check_losses(drill: Drill, last: int, *, has_lost_log_end: bool = False) -> None:
    """Rank 0 has printed the loss of every step, as an undisturbed run does.

    `has_lost_log_end`: the fault took what carries the log, the batch host's own disk or a stopped srun. Lines may be
    missing that were still on their way: those at the end of an attempt, up to the checkpoint the next one began with.
    """
    said, expected = drill.losses(), losses_until(last)
    for step in _on_their_way(drill) - set(said) if has_lost_log_end else ():
        expected.pop(step, None)
    assert said == expected, drill.story()


def _on_their_way(drill: Drill) -> set[int]:
    """Steps after the last one that an attempt's log shows, and not after the one that the next attempt began with."""
    found: set[int] = set()
    for before, after in itertools.pairwise(drill.state().attempts):
        shown = max(drill.losses(attempt=before.number), default=before.resume_step or 0)
        found.update(range(shown + 1, (after.resume_step or 0) + 1))
    return found


def check_nothing_left(drill: Drill) -> None:
    """After a named end: one writer at any time, no job, and no process of the run once all nodes are awake again."""
    assert drill.state().ended is not None, drill.story()
    before = stamps(drill)
    for machine in reversed(drill.sandbox.machines):   # servers first: a node comes back when slurmctld says so
        drill.sandbox.heal(machine)
    drill.wait_for(lambda: not drill.jobs(), LEAVE_S, "a job is left")
    drill.wait_for(lambda: not _left(drill), LEAVE_S, "processes of the run (the last words below) are left")
    assert stamps(drill) == before, f"a rank made a step after the run's end\n{drill.story()}"
    check_one_writer(drill)


def _left(drill: Drill) -> list[int]:
    """Its processes, without srun: one whose node has died waits until Slurm gives the node's answer up (30 s)."""
    left = [pid for pid in drill.pids() if command_name(pid) != "srun"]
    drill.noise = [line for line in drill.noise if not line.startswith("left: ")]
    for pid in left:
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            drill.noise.append(f"left: {pid} (child of {state[1]}, {state[0]}) {words[:300]}")
    return left
