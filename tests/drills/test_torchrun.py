"""The real torchrun under the supervisor: its ranks live in sessions of their own, behind a rendezvous of their own."""

from __future__ import annotations

import os
import random
import re
import socket
from pathlib import Path

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import check_losses, long_only
from tests.runs import Drill, Installation, Submit, Submitter, environ_of, parent_of
from tests.sandboxes import make_workdir
from tests.torchbin import needs_torch
from tests.trainers.stepping import losses_until
from tests.users import command_lines_seen_by

NOBODY = 65534
ENDLESS = "--steps 100000 --step-time 0.05 --save-every 1000000"

# Holds the port that the first node's torchrun is about to take.
TAKE_PORT = """\
if [[ $SAFELAUNCH_ATTEMPT == 1 && $SLURM_NODEID == 0 ]]; then
  python3 -c 'import os, socket, time
holder = socket.create_server(("", int(os.environ["MASTER_PORT"])))
open("taken", "w").close()
time.sleep(60)' &
  until [[ -e taken ]]; do sleep 0.02; done
fi
"""

# One rank dies while the others wait for it, and they wait on whatever they are told: as in an NCCL collective.
BARRIER = """\
import datetime, os, signal, time
import torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(hours=1))
dist.barrier()
if dist.get_rank() == 3:
    time.sleep(0.5)   # the others are in the barrier by then
    print("dies at", time.time())
    os.kill(os.getpid(), signal.SIGKILL)
try:
    dist.barrier()
except RuntimeError:
    time.sleep(3600)
"""


def words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def ranks(drill: Drill, node: str | None = None) -> list[int]:
    """The trainers."""
    return [pid for pid in drill.ranks(node) if b"-u" in words(pid)]


def launchers(drill: Drill, node: str) -> list[int]:
    return [pid for pid in drill.pids("/torchrun") if any(word.endswith(b"/torchrun") for word in words(pid)[:3])
            and f"SLURMD_NODENAME={node}".encode() in environ_of(pid).split(b"\0")]


def stamps(drill: Drill, attempt: int) -> list[int]:
    rows = [line.split() for path in (drill.folder / "stamps").iterdir() for line in path.read_text().splitlines()]
    return [int(row[0]) for row in rows if len(row) == 3 and int(row[1]) == attempt]


@needs_torch
@pytest.mark.torch
def test_rank_killed_at_a_random_step_is_resumed_in_place_and_every_line_names_its_host(torchrun: Submit) -> None:
    step = random.randint(11, 28)
    drill = torchrun(f"--steps 40 --step-time 0.03 --save-every 10 --die-at {step} --die-rank 3 --lockstep sync")

    state = drill.wait_end(120)

    assert state.ended and (state.ended.how, state.ended.exit_code) == ("completed", 0), drill.story()
    assert len(state.attempts) == 2 and len({attempt.job for attempt in state.attempts}) == 1, drill.story()
    assert state.attempts[1].resume_step == (step - 1) // 10 * 10
    assert drill.losses() == losses_until(40)
    for rank in range(4):   # torchrun counts the ranks of each host
        prefix = rf"\[{state.attempts[1].nodes[rank // 2]}:{rank % 2}\]:"
        assert len(re.findall(rf"(?m)^{prefix} ?step 40 loss \S+ rank {rank}$", drill.log(2))) == 1, drill.log(2)


@needs_torch
@pytest.mark.torch
def test_ranks_of_a_killed_torchrun_are_gone_before_the_next_attempt_starts(torchrun: Submit) -> None:
    drill = torchrun("--steps 270 --step-time 0.05 --save-every 10 --stamp-dir stamps --ignore-term", nodes=1)
    drill.wait_step(12, timeout_s=60)
    (worker,) = drill.state().attempts[0].nodes
    assert len(ranks(drill, worker)) == 2
    assert not {os.getsid(pid) for pid in ranks(drill, worker)} & {os.getsid(pid) for pid in launchers(drill, worker)}

    for pid in launchers(drill, worker):
        drill.kill(pid)
    state = drill.wait_end(120)

    assert state.ended and state.ended.how == "completed" and len(state.attempts) == 2, drill.story()
    assert max(stamps(drill, 1)) < min(stamps(drill, 2)), "an old rank wrote beside its successor"
    check_losses(drill, 270, has_lost_log_end=True)   # what its ranks say goes through torchrun
    assert not ranks(drill)


@needs_torch
@pytest.mark.torch
def test_kill_switch_signals_the_ranks_and_never_torchrun_or_bash(torchrun: Submit) -> None:
    drill = torchrun(f"{ENDLESS} --handle-usr2", nodes=1)
    drill.wait_step(3, timeout_s=60)
    assert max(drill.steps()) < 100, "lines come as they are printed, not in blocks of 8 KiB (113 steps)"
    drill.wait_ranks(2)
    pids = sorted(ranks(drill))

    assert drill.as_user("stop", str(drill.run_dir)).returncode == 0
    state = drill.wait_end()

    assert state.ended and (state.ended.how, state.ended.exit_code) == ("stopped", 12), drill.story()
    said = re.search(r"SIGUSR2 reached 2 processes \((.*?)\)", drill.story())
    assert said and sorted(map(int, re.findall(r"\[(\d+)\]", said[1]))) == pids, drill.story()
    assert drill.events("attempt_ended")[0].data["exit_code"] == 0, "torchrun ended by itself"
    assert (drill.folder / "ckpt" / f"step_{max(drill.losses()):08d}.pt").exists(), "the ranks saved first"


@needs_torch
@pytest.mark.torch
def test_ranks_of_a_command_with_secrets_show_none_in_ps_and_are_torchruns_own_children(
    torchrun: Submit, installation: Installation
) -> None:
    command = ("export FIRST=secret-exported\ncat <<<secret-here-string >here\n"
               "until [[ -e go ]]; do sleep 0.05; done   # secret-remark\n"
               f"[[ $FIRST == secret-exported ]] && OWN=secret-own {installation.trainer} {ENDLESS} --ckpt ckpt "
               "${RESUME_ARGS}")
    drill = torchrun(command=command, setup="IN_SETUP=secret-setup", nodes=1, overrides=("env.TOKEN=secret-env",))
    drill.wait_for(lambda: (drill.folder / "here").exists(), 60, "the command did not start")
    before, ours = command_lines_seen_by(NOBODY), set(drill.pids())
    (drill.folder / "go").touch()
    drill.wait_ranks(2)

    lines = command_lines_seen_by(NOBODY)

    (node,) = drill.state().attempts[0].nodes
    pids = ranks(drill, node)
    assert len(pids) == 2 and all("steps.py" in lines[pid] for pid in pids)
    ours |= set(drill.pids())
    assert not [line for pid, line in [*before.items(), *lines.items()] if "secret-" in line and pid in ours]
    assert b"OWN=secret-own" in environ_of(pids[0]).split(b"\0")
    assert {parent_of(pid) for pid in pids} == set(launchers(drill, node))
    drill.kill(pids[0])
    drill.wait_for(lambda: re.search(r"exitcode *: -9 ", drill.log(1)), 60, "torchrun does not say that it was killed")
    drill.wait_for(lambda: "Signal 9 (SIGKILL)" in drill.log(1), 60, "torchrun does not name the signal")
    assert "Killed" not in drill.log(1), "a shell has seen it die"


@long_only   # test_bootchecks has a port that is in use, tests/supervisor/test_masterport.py the choice of another one
@needs_torch
@pytest.mark.torch
def test_port_that_is_in_use_costs_one_attempt(torchrun: Submit) -> None:
    drill = torchrun("--steps 5", setup=TAKE_PORT, nodes=1)

    state = drill.wait_end(120)

    assert state.ended and state.ended.how == "completed" and len(state.attempts) == 2, drill.story()
    assert re.search("address already in use|EADDRINUSE", drill.log(1)), drill.log(1)
    first, second = (event.data["port"] for event in drill.events("attempt_started"))
    assert first != second


@needs_torch
@pytest.mark.torch
def test_ranks_that_wait_in_a_barrier_for_a_killed_one_are_ended_within_a_minute_and_every_verb_names_the_kill(
    sandbox: Sandbox, torchrun: Submit
) -> None:
    work = make_workdir(sandbox)
    (work / "barrier.py").write_text(BARRIER)
    drill = torchrun(command="python3 barrier.py", folder=work, overrides=("restart.max_restarts=0",))

    state = drill.wait_end(120)

    assert state.ended and state.ended.exit_code == 11, drill.story()
    died = re.search(r"dies at (\S+)", drill.log(1))
    # 2.3 s on a quiet machine, 10.7 s among ten other jobs; by themselves they would wait for an hour.
    assert died and drill.events("attempt_ended")[0].t - float(died[1]) < 60, drill.story()
    # torchrun has ended the others by SIGTERM, and told of that: no word of a person's cancel may be made of it.
    assert "SIGTERM" in drill.log(1), drill.log(1)
    node = state.attempts[0].nodes[1]
    for verb in ("why", "events", "status"):
        said = " ".join(drill.as_user(verb, str(drill.run_dir)).stdout.split())
        assert f"rank 3 on {node} was killed by signal 9" in said, said
        assert "cancel" not in said and "somebody ended" not in said, said


def test_every_rank_is_told_an_address_that_works_though_names_do_not_resolve(
    sandbox: Sandbox, submit: Submitter
) -> None:
    command = 'echo "rendezvous $MASTER_ADDR:$MASTER_PORT $SLURM_PROCID"; [[ $SAFELAUNCH_ATTEMPT == 2 ]]'
    drill = submit(sandbox)(command=command)

    drill.wait_end()

    with pytest.raises(socket.gaierror):
        socket.getaddrinfo(drill.state().attempts[0].nodes[0], None)
    told = [set(re.findall(r"rendezvous (\S+):(\d+) \d", drill.log(attempt))) for attempt in (1, 2)]
    assert [len(places) for places in told] == [1, 1], "all ranks of an attempt meet at one place"
    (address, first), (again, second) = (places.pop() for places in told)
    assert address == again == "127.0.0.1"
    assert first != second, "a dying rank may still hold the old port"


def test_direct_ranks_need_no_torchrun_and_one_that_is_killed_ends_the_others_at_once_by_name(
    sandbox: Sandbox, submit: Submitter
) -> None:
    command = ('echo "here $RANK"; if ((RANK == 3)); then sleep 0.5; echo "dies at $EPOCHREALTIME"; kill -9 $$; fi; '
               "exec sleep 3600")
    drill = submit(sandbox)(nodes=2, tasks=1, command=command, overrides=(
        "launch.with=torchrun", "launch.nproc_per_node=2", "launch.torchrun=direct", "restart.max_restarts=0"))

    state = drill.wait_end(60)

    assert state.ended and state.ended.exit_code == 11, drill.story()
    nodes = state.attempts[0].nodes
    for rank in range(4):
        assert f"[{nodes[rank // 2]}:{rank % 2}]:here {rank}\n" in drill.log(1), drill.log(1)
    died = re.search(r"dies at (\S+)", drill.log(1))
    assert died and drill.events("attempt_ended")[0].t - float(died[1]) < 10, drill.story()
    for verb in ("why", "events", "status"):
        said = " ".join(drill.as_user(verb, str(drill.run_dir)).stdout.split())
        assert f"rank 3 on {nodes[1]} was killed by signal 9" in said, said
        assert "cancel" not in said and "somebody ended" not in said, said
