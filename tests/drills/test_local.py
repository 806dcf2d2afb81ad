"""The local cluster: the same supervisor on this machine, its nodes as process groups, no Slurm."""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from safelaunch.node.guard.fence import LOOK_S
from safelaunch.run.io import ownership
from tests.drills.proofs import long_only, tell_last
from tests.handmade import fake_command
from tests.localruns import LocalRun, SubmitLocal, type_safelaunch, write_yaml
from tests.trainers.stepping import FIRST_STATE, losses_until, next_state, save

ENDLESS = "--steps 100000 --step-time 0.02"


def how(run: LocalRun) -> tuple[str, int]:
    ended = run.wait_end()
    return ended.how, ended.exit_code


def test_rank_killed_on_one_of_two_nodes_is_resumed_with_equal_losses(submit_local: SubmitLocal) -> None:
    run = submit_local("--steps 40 --step-time 0.02 --save-every 10 --die-at 25 --die-rank 3 --lockstep sync",
                       nodes=2, tasks=2)

    assert how(run) == ("completed", 0), run.story()
    first, second = run.state().attempts
    assert (first.nodes, second.resume_step) == (("local0", "local1"), 20)
    for rank, host in enumerate(("local0", "local0", "local1", "local1")):
        assert run.losses(rank) == losses_until(40)
        assert f"[{host}:{rank}]:step 40 loss" in run.log(2)


def test_each_task_of_a_node_is_a_process_group_apart(submit_local: SubmitLocal) -> None:
    run = submit_local(ENDLESS, nodes=2, tasks=2)
    run.wait_step(1)
    run.wait_for(lambda: len(run.ranks()) == 4, 60, "not all ranks started")

    assert len({os.getpgid(pid) for pid in run.ranks()}) == 4
    assert os.getpgid(0) not in {os.getpgid(pid) for pid in run.pids()}


def test_run_folder_that_somebody_opens_to_the_group_is_closed_before_the_next_supervisor_is_born(
    submit_local: SubmitLocal
) -> None:
    run = submit_local(f"{ENDLESS} --save-every 1000000")
    run.wait_step(3)

    for path in (run.run_dir, *run.run_dir.iterdir()):
        path.chmod(path.stat().st_mode | 0o020)   # as a `chmod -R g+w` over all of a project does
    run.wait_for(lambda: ownership.why_not_own_run(run.run_dir) is None, 60, "the folder stays open")

    os.kill(run.leader(), signal.SIGKILL)
    (run.run_dir / "control" / "kill-now").touch()
    assert how(run) == ("stopped", 12), run.story()
    assert "it is closed to them again" in run.story()


def test_touched_kill_switch_ends_it_gracefully_and_for_good(submit_local: SubmitLocal) -> None:
    run = submit_local(f"{ENDLESS} --handle-usr2 --save-every 1000000", nodes=2)
    run.wait_ranks(2)

    (run.run_dir / "control" / "kill").touch()

    assert how(run) == ("stopped", 12), run.story()
    assert run.stopped() == 2, run.story()
    assert (run.folder / "ckpt" / f"step_{max(run.losses()):08d}.pt").exists()
    assert len(run.state().attempts) == 1


def test_stop_at_the_next_checkpoint_loses_no_step_of_a_training_that_cannot_hear_it(submit_local: SubmitLocal) -> None:
    run = submit_local(f"{ENDLESS} --save-every 300", "kill_switch.grace=10m", nodes=2)
    run.wait_step(3)

    done = run.type("stop", "--checkpoint")

    assert "ends as soon as its next checkpoint is complete, at the latest at 20" in done.stderr
    run.wait_for(lambda: run.state().attempts[0].waits_for, 60, "nothing says what is waited for")
    said = run.type("status").stdout
    assert "stopping" in said and "waiting for its next complete checkpoint, until " in said, said
    assert how(run) == ("stopped", 12), run.story()
    state = run.state()
    assert state.attempts[0].heard == 0 and state.best_step is not None and state.best_step >= 300
    assert state.ended and "wanted it to stop at its next checkpoint; its newest complete" in state.ended.why
    assert "no process of the training handles SIGUSR2" in run.story()
    assert "its next checkpoint is complete: " in run.story()


@pytest.mark.parametrize("flags", [["--now"], []], ids=["stop --now", "stop"])
def test_stop_ends_it_and_leaves_no_process(submit_local: SubmitLocal, flags: list[str]) -> None:
    run = submit_local(f"{ENDLESS} --watch-kill-file")
    run.wait_step(3)

    assert run.type("stop", *flags).returncode == 0

    assert how(run) == ("stopped", 12), run.story()


def test_killed_leader_is_back_within_seconds_and_the_training_goes_on(submit_local: SubmitLocal) -> None:
    run = submit_local("--steps 300 --step-time 0.03")
    run.wait_step(5)

    killed_t = time.time()
    os.kill(run.leader(), signal.SIGKILL)
    run.wait_for(lambda: run.events("took_over"), 60, "nobody took over")

    assert run.events("took_over")[0].t - killed_t < 20   # 1 s on a quiet machine
    assert how(run) == ("completed", 0), run.story()
    assert len(run.state().attempts) == 1 and run.losses() == losses_until(300)


def test_leader_whose_port_was_taken_while_it_was_dead_is_found_by_its_guards(submit_local: SubmitLocal) -> None:
    """Any outgoing connection of anybody can take it."""
    run = submit_local(f"{ENDLESS} --handle-usr2 --save-every 1000000", nodes=2)
    run.wait_ranks(2)
    _, port = json.loads((run.run_dir / "pulse.json").read_text())["endpoint"]
    assert [line.split()[2] for line in _sockets("listening", port)] == [f"127.0.0.1:{port}"], "of this machine alone"

    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with run.leader_dies():
            run.wait_for(lambda: _takes(stranger, port), 60, "the port was not free")
        run.wait_for(lambda: run.events("took_over"), 60, "nobody took over")
        record = run.run_dir / "attempts" / "0001" / "record.json"
        run.wait_for(lambda: json.loads(record.read_text())["endpoint"][1] != port, 60, "the record names the old port")
        # A guard looks there after LOOK_S of silence. Two connections: both have found it.
        found = json.loads(record.read_text())["endpoint"][1]
        run.wait_for(lambda: len(_sockets("established", found)) == 2, LOOK_S + 60, "not both guards have found it")
        (run.run_dir / "control" / "kill").touch()
        assert how(run) == ("stopped", 12), run.story()
    assert run.stopped() == 2, run.story()


def _sockets(state: str, port: int) -> list[str]:
    """Those of this port here, in words of ss(8)."""
    words = ["ss", "-Htn", "state", state, f"sport = {port}"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()


def _takes(sock: socket.socket, port: int) -> bool:
    with suppress(OSError):
        sock.bind(("127.0.0.1", port))
        sock.listen()
        return True
    return False


def test_killed_pump_loses_no_line(submit_local: SubmitLocal) -> None:
    run = submit_local("--steps 300 --step-time 0.02", tasks=2)
    run.wait_step(5)
    run.wait_for(lambda: run.pids("pump.py"), 60, "no pump runs")

    for pid in run.pids("pump.py"):
        os.kill(pid, signal.SIGKILL)

    assert how(run) == ("completed", 0), run.story()
    assert [run.losses(rank) for rank in range(2)] == [losses_until(300)] * 2
    assert len(run.log(1).splitlines()) == 2 * 301, "no line twice, none lost"


@pytest.mark.parametrize(("flags", "code"), [("--steps 3", 0), ("--fail-always", 10)], ids=["done", "failed for good"])
def test_submit_wait_and_wait_end_with_the_exit_code_of_the_run(
    tmp_path: Path, local_env: dict[str, str], flags: str, code: int
) -> None:
    write_yaml(tmp_path, flags)
    submitted = type_safelaunch(["submit", "train.yaml", "--wait", "cluster=local"], tmp_path, local_env)
    assert submitted.returncode == code, submitted.stderr
    assert type_safelaunch(["wait"], tmp_path, local_env).returncode == code


def test_wait_ends_with_12_for_a_stopped_run_and_with_124_when_its_time_is_up(submit_local: SubmitLocal) -> None:
    run = submit_local(ENDLESS)
    assert run.type("wait", "--timeout", "1s").returncode == 124
    run.type("stop", "--now")
    assert run.type("wait").returncode == 12


def test_auto_takes_this_machine_without_sbatch_and_says_so(submit_local: SubmitLocal) -> None:
    run = submit_local("--steps 2")
    assert how(run) == ("completed", 0), run.story()
    assert json.loads((run.run_dir / "run.json").read_text())["config"]["cluster"] == "local"
    said = run.type("submit", "train.yaml", "--dry-run")
    assert "cluster: auto takes this machine: there is no sbatch on the PATH" in said.stderr
    assert f"run: bash {run.folder}" in said.stderr


def test_auto_takes_slurm_where_sbatch_is_on_the_path(tmp_path: Path, local_env: dict[str, str]) -> None:
    write_yaml(tmp_path, "--steps 2")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sbatch").symlink_to("/bin/true")
    said = type_safelaunch(["submit", "train.yaml", "--dry-run"], tmp_path,
                           {**local_env, "PATH": f"{tmp_path}/bin:{local_env['PATH']}"})
    assert "run: sbatch " in said.stderr and "this machine" not in said.stderr
    assert "SL_SRUN=('srun')" in said.stdout


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a filesystem")
def test_a_local_disk_that_is_filled_to_the_last_byte_costs_a_restart_and_no_more(
    submit_local: SubmitLocal, local_env: dict[str, str], tmp_path: Path
) -> None:
    """The leader dies of it at the next launch, and is born again in the space that was set aside."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(small)], check=True)
    try:
        local_env["SAFELAUNCH_LOCAL_DIR"] = str(small)
        run = submit_local("--steps 100000 --step-time 0.05 --save-every 10 --until last")
        run.wait_step(15)
        with suppress(OSError), (small / "full").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        os.kill(run.ranks()[0], signal.SIGKILL)
        tell_last(run.folder, 60)

        assert how(run) == ("completed", 0), run.story()
        first, second = run.state().attempts
        assert (first.ended, second.ended) == ("failed", "completed") and second.resume_step, run.story()
        # Its lines may be lost: the log waits on that disk. Its checkpoint lies elsewhere, as checkpoints do.
        last = int((run.folder / "last.agreed").read_text())
        assert (run.folder / "ckpt" / f"step_{last:08d}.pt").exists(), run.story()
        run.wait_for(lambda: not run.pids(), 60, "a process is left")
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True)


def test_a_training_that_does_not_load_its_checkpoint_is_ended_before_it_overwrites_one(
    submit_local: SubmitLocal,
) -> None:
    """The words that should load it load nothing; steps of a second leave time to see that before the next save."""
    run = submit_local("--steps 60 --step-time 0.01 --save-every 10 --die-at 25", "resume.args=--step-time 1")
    assert how(run) == ("gave_up", 10), run.story()

    (event,) = run.events("lost_progress")
    assert (event.data["step"], event.data["resume_step"], event.data["sure"]) == (1, 20, True)
    _, second = run.state().attempts
    saved = {path.name: path.stat().st_mtime for path in (run.folder / "ckpt").iterdir()}
    assert max(saved.values()) < second.started_t, saved
    assert "!!! LOST PROGRESS: attempt 2 was to go on from step 20" in run.story()
    for verb in ("why", "status", "events"):
        said = type_safelaunch([verb, str(run.run_dir)], run.folder, run.env).stdout
        assert "the checkpoint was not loaded" in said, f"{verb}: {said}"


def test_checkpoints_whose_names_are_no_text_are_resumed_from_and_told_of(
    submit_local: SubmitLocal, tmp_path: Path,
) -> None:
    (tmp_path / "ckpt").mkdir()
    state = functools.reduce(next_state, range(1, 21), FIRST_STATE)
    save(os.fsdecode(bytes(tmp_path) + b"/ckpt/step_20\xff '\n.pt"), 20, state)
    torn = os.open(bytes(tmp_path) + b"/ckpt/step_30\xff\nslurmstepd: error: .pt", os.O_CREAT | os.O_WRONLY)
    os.write(torn, b"torn")
    os.close(torn)

    run = submit_local("--steps 40 --step-time 0.01")

    assert how(run) == ("completed", 0), run.story()
    (only,) = run.state().attempts
    assert only.resume_step == 20 and "step 20 " not in run.log(1)
    assert "/step_30\\xff; slurmstepd: error: .pt is skipped" in run.story()
    script = (run.run_dir / "attempts" / "0001" / "launch.sh").read_text()
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    for verb in ("status", "events", "checkpoints"):
        said = type_safelaunch([verb], run.folder, run.env)
        assert said.returncode == 0 and "Traceback" not in said.stderr, said


def test_a_step_pattern_that_takes_for_ever_holds_neither_the_kill_switch_nor_status(submit_local: SubmitLocal) -> None:
    run = submit_local(ENDLESS, "progress.step=(?:[ -~]|[ -~])+ (\\d+)!$")
    run.wait_for(lambda: "progress.step is given up" in run.story(), 60, "the pattern was not given up")
    run.wait_step(5)
    begin_s = time.monotonic()

    (run.run_dir / "control" / "kill-now").touch()

    assert how(run) == ("stopped", 12), run.story()
    assert time.monotonic() - begin_s < 60
    assert type_safelaunch(["status"], run.folder, run.env, timeout_s=60).returncode == 0


def test_secrets_that_a_training_logs_stay_in_its_log(submit_local: SubmitLocal, tmp_path: Path) -> None:
    secrets = ("hf_Qb3cD4eF5gH6iJ7kL8mN9oP1qR2sT3uV4w", "hunter2x", "correct-horse")
    (tmp_path / "says").write_text(
        f"Traceback (most recent call last):\n  File \"train.py\", line 7\n    log_in(WANDB_API_KEY={secrets[1]})\n"
        f"RuntimeError: 401 for token {secrets[0]} at https://ann:{secrets[2]}@hub.example.org/x\n")
    run = submit_local("--steps 2; cat says >&2; false")
    assert how(run) == ("gave_up", 10), run.story()

    verbs = ("why", "why --all", "why --json", "why --ticket", "events --all", "events --json", "status --json")
    said = "".join(run.type(*words.split()).stdout for words in verbs)
    assert "RuntimeError: 401 for token hf_***" in said, said
    kept = {path: path.read_text(errors="replace") for path in run.run_dir.rglob("*")
            if path.is_file() and path.name != "main.log"}
    assert any("401 for token hf_***" in text for text in kept.values()), list(kept)
    for secret in secrets:
        assert secret in run.log(1)
        assert secret not in said and [path for path, text in kept.items() if secret in text] == []


def test_a_training_whose_loss_becomes_nan_ends_the_run_where_on_nan_says_stop(submit_local: SubmitLocal) -> None:
    lines = 'for n in $(seq 1 9); do echo "step $n | lm loss: $([ $n -lt 4 ] && echo 2.5 || echo nan) |"; done'
    run = submit_local("--steps 60", "on_nan=stop", "resume.by=training", f"command={lines}; sleep 600")
    assert how(run) == ("gave_up", 10), run.story()

    (event,) = run.events("odd_figure")
    assert (event.data["kind"], event.data["value"]) == ("nan", "nan")
    attempt = run.state().attempt
    assert attempt is not None and attempt.category == "numerical", run.story()
    assert "(on_nan: stop)" in run.story()
    run.wait_for(lambda: not run.pids(), 60, "a process is left")


# Its weights are no numbers from step 13 on, once, and it saves them as well.
NAN_ONCE = """\
import json, os, time
path = os.environ.get("SAFELAUNCH_RESUME_PATH")
state = json.load(open(path)) if path else {"step": 0, "is_bad": False}
is_first = os.environ["SAFELAUNCH_ATTEMPT"] == "1"
os.makedirs("nanckpt", exist_ok=True)
for step in range(state["step"] + 5, 31, 5):
    state = {"step": step, "is_bad": state["is_bad"] or (is_first and step > 13)}
    print(f"step {step} | lm loss: {'nan' if state['is_bad'] else 2.5} |", flush=True)
    with open("nanckpt/tmp", "w") as file:
        json.dump(state, file)
    os.rename("nanckpt/tmp", f"nanckpt/step_{step}.json")
time.sleep(600 * is_first)
"""


def test_a_training_goes_on_from_the_last_checkpoint_before_its_nan(submit_local: SubmitLocal, tmp_path: Path) -> None:
    (tmp_path / "nan_once.py").write_text(NAN_ONCE)
    run = submit_local("", "on_nan=previous_checkpoint", f"command={sys.executable} nan_once.py # ${{RESUME_ARGS}}",
                       "resume.dir=nanckpt", "resume.format=pattern", "resume.pattern=step_{step}.json",
                       "resume.by=training", "slurm.ntasks_per_node=1")
    assert how(run) == ("completed", 0), run.story()

    first, second = run.state().attempts
    assert (first.category, second.resume_step) == ("numerical", 10), run.story()
    (cut,) = run.events("checkpoints_cut")
    assert ([step for _, step, _ in cut.data["checkpoints"]], cut.data["upto"]) == ([30, 25, 20, 15], 10)
    assert "nan" not in run.log(2)
    shown = run.type("checkpoints", "--json").stdout
    assert "no finite number" not in shown, "the second attempt has written them again"


@long_only
@pytest.mark.parametrize(("word", "how_it_ends"), [("--after", "gave_up"), ("--after-any", "completed")])
def test_one_that_waits_for_a_run_whose_processes_are_gone_ends_after_a_minute(
    submit_local: SubmitLocal, word: str, how_it_ends: str
) -> None:
    first = submit_local(ENDLESS)
    first.wait_step(1)
    second = submit_local("--steps 3 --step-time 0.01", "name=second", word, str(first.run_dir))
    second.wait_for(lambda: second.events("decision"), 60, "it does not wait")
    while left := first.pids():   # as after a reboot
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    ended = second.wait_end()
    assert ended.how == how_it_ends, second.story()
    assert ("see: safelaunch status local" in ended.why) == (word == "--after")


def test_a_gpu_of_another_type_than_asked_is_reported_and_used(
    submit_local: SubmitLocal, local_env: dict[str, str], tmp_path: Path
) -> None:
    said = Path(__file__).parent.parent / "node/checks/said/smi-h100.xml"
    (tmp_path / "bin").mkdir()
    fake_command(tmp_path / "bin", "nvidia-smi", f"[[ $1 == nvlink ]] || exec cat {said}")
    local_env["PATH"] = f"{tmp_path}/bin:{local_env['PATH']}"

    # Other tests of this machine hang mounts.
    run = submit_local("--steps 2", "checks.boot=true", "checks.skip=[mount]", "slurm.gpus_per_node=a100:2")

    assert how(run) == ("completed", 0), run.story()
    assert "gpu_model: failed: NVIDIA H100 80GB HBM3, a100 asked" in run.story()
    assert [event.data["nodes"] for event in run.events("checks_passed")] == [["local0"]], run.story()


@long_only
def test_ranks_that_run_in_another_pytorch_after_setup_are_named(submit_local: SubmitLocal, tmp_path: Path) -> None:
    info = tmp_path / "other" / "torch-2.4.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.4.0\n")
    setup = f"if [ $SLURMD_NODENAME = local1 ]; then export PYTHONPATH={tmp_path}/other; fi"
    run = submit_local(ENDLESS, f"setup={setup}", nodes=3)
    told = "ranks of attempt 1 run in unlike software: local1: PyTorch: 2.4.0, but "

    run.wait_for(lambda: told in run.story(), 120, "nothing is told")   # a minute after the start

    kept = json.loads((run.run_dir / "attempts" / "0001" / "system" / "software.json").read_text())
    assert kept["nodes"]["local1"]["torch"] == "2.4.0" and set(kept["nodes"]) == {"local0", "local1", "local2"}
    assert run.type("stop", "--now").returncode == 0
    assert how(run) == ("stopped", 12), run.story()


WARM = """import os, sys, time
import yaml
print("rank", os.environ["RANK"], "of", open(f"/proc/{os.getppid()}/cmdline").read().count("KEEPER"), sys.argv[1:])
for step in range(1, 10000):
    print("step", step, "loss", 1 / step)
    time.sleep(0.1)
"""


@long_only
def test_ranks_of_the_next_attempt_go_on_in_interpreters_that_were_ready_and_none_is_left(
    submit_local: SubmitLocal, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(WARM)
    run = submit_local("", f"command={sys.executable} -u train.py", "resume.by=training", "resume.args=",
                       "launch.with=torchrun", "launch.nproc_per_node=2", "launch.torchrun=direct", "restart.warm=true",
                       nodes=2)

    def are_ready() -> bool:
        return waiting_of(run) == 4

    run.wait_for(are_ready, 120, "not all were ready")
    with run.leader_dies():   # the step that waits ends with it, and the next leader starts another
        run.wait_for(lambda: not run.pids("safelaunch_parked"), 60, "parked interpreters outlived their leader")
    run.wait_for(are_ready, 120, "not all were ready again")
    assert len(run.ranks("train.py")) == 4, "they are no ranks yet"
    os.kill(run.ranks("train.py")[0], signal.SIGKILL)
    run.wait_for(lambda: run.log(2).count("rank ") == 4, 120, "no second attempt")
    assert run.log(2).count(" of 1 []") == 4, run.log(2)
    run.wait_step(3, 2)
    run.wait_for(are_ready, 120, "not all were ready for the third attempt")
    (run.run_dir / "control" / "kill-now").touch()
    assert run.wait_end().how == "stopped"


def waiting_of(run: LocalRun) -> int:
    """How many parked interpreters have imported all, and wait in `/`."""
    def is_waiting(pid: int) -> bool:
        with suppress(OSError):
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return (words[0] == "S" and os.readlink(f"/proc/{pid}/cwd") == "/"
                    and "_yaml" in Path(f"/proc/{pid}/maps").read_text())
        return False

    return sum(map(is_waiting, run.pids("safelaunch_parked")))
