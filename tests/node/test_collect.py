"""The collector: a node's word on its ranks, whatever hangs, fails or is missing there."""

from __future__ import annotations

import ast
import base64
import contextlib
import errno
import json
import os
import pickle
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.hangs.proof import Examination, weigh
from safelaunch.node import children, collect, devices, evidence, plain, proctable, ranksoftware, spy
from safelaunch.nodehealth.io import nodechecks
from safelaunch.slurm.io import noderound
from safelaunch.slurm.io.slurm import Command
from safelaunch.stacks import stacktext
from safelaunch.stacks.io import collect as fan_out
from safelaunch.stacks.ranks import ReportReader
from safelaunch.stacks.stacks import fold
from safelaunch.stacks.verdict import judge_hang
from tests.frozen import FuseMount
from tests.node.names import JOB, OTHER_JOB
from tests.sandboxes import wait_until

pytestmark = pytest.mark.timed   # real programs and screens, within real deadlines

NODE = Path(children.__file__).parent
SLEEPER = """import time
def inner():
    time.sleep(600)
def outer():
    inner()
print('up', flush=True)
outer()
"""
POLLER = """import os
print('up', flush=True)
while not all(os.path.exists(path) for path in ('/', '/nowhere')):
    pass
"""
Spawn = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """`spawn(words, env)`: a process that has said that it is up; ended with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def go(words: list[str], **env: str) -> subprocess.Popen[bytes]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "SAFELAUNCH"))}
        process = subprocess.Popen(words, env={**kept, **env}, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None and process.stdout.readline()
        return process

    yield go
    for process in started:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside others a dump waits for a processor for longer than its three seconds."""
    monkeypatch.setattr(spy, "DUMP_S", 60.0)


def a_rank(spawn: Spawn, number: int, job: str = JOB, **env: str) -> int:
    pid = spawn([sys.executable, "-c", SLEEPER], SLURM_JOB_ID=job, RANK=str(number), WORLD_SIZE="2",
                SLURMD_NODENAME="n0", **env).pid
    wait_until(lambda: proctable.read_stat(f"/proc/{pid}/stat").state == "S", 60, "it does not sleep")
    return pid


def report_of(capsys: pytest.CaptureFixture[str], **options: object) -> dict[str, Any]:
    """What the collector prints."""
    words = {"job": JOB, "node": "n0", "gpus": False, "gap_s": 0.05, "deadline_s": 120.0, **options}
    assert collect.main(json.dumps(words)) == 0
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    return said


# --- the report ------------------------------------------------------------------------------------------------------


def test_ranks_of_the_job_are_reported_with_what_the_kernel_says(
    spawn: Spawn, capsys: pytest.CaptureFixture[str]
) -> None:
    pids = [a_rank(spawn, 0), a_rank(spawn, 1)]

    said = report_of(capsys)

    assert [(row["rank"], row["pid"], row["world"]) for row in said["ranks"]] == [(0, pids[0], 2), (1, pids[1], 2)]
    assert {row["call"] for row in said["ranks"]} <= {"clock_nanosleep", "select", "pselect6"}
    assert all(row["states"] == "SS" and len(row["cpu"]) == 2 for row in said["ranks"])


def test_stacks_are_those_of_the_python_program(spawn: Spawn, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("py-spy", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("py-spy is not installed beside the interpreter: pip install py-spy")
    a_rank(spawn, 0)

    (rank,) = ReportReader().read(json.dumps(report_of(capsys))).ranks

    assert rank.samples[0] == ("inner (<string>:3)", "outer (<string>:5)", "<module> (<string>:7)")
    assert len(rank.samples) == 2 and rank.samples[0] is rank.samples[1]


def test_stacks_of_a_process_that_never_pauses_are_whole(spawn: Spawn, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("py-spy", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("py-spy is not installed beside the interpreter: pip install py-spy")
    spawn([sys.executable, "-c", POLLER], SLURM_JOB_ID=JOB, RANK="0", WORLD_SIZE="1", SLURMD_NODENAME="n0")

    (rank,) = ReportReader().read(json.dumps(report_of(capsys, samples=40, gap_s=0.0))).ranks

    # A dump or two may be torn each time that it is tried. Before there were more tries, looks ended after 20 or so.
    whole = [sample for sample in rank.samples if sample[-1].startswith("<module> ")]
    assert len(whole) >= 36, (rank.why, set(rank.samples))


def test_a_dump_that_was_torn_is_taken_again_and_a_rank_whose_dumps_all_are_is_looked_at_in_the_next_sample(
    tmp_path: Path, spawn: Spawn, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, torn, none = (dump(*frames) for frames in (("exists", "poll", "<module>"), ("exists", "poll"), ()))
    lost = "Error: Failed to get stack traces\nCaused by:\n    0: Failed to copy PyFrameObject\n    1: Bad address"
    said = [torn, none, whole, lost, torn, whole, *[lost] * 5, whole, *[dump("loop", "embedded")] * 4]
    for number, words in enumerate(said, 1):
        (tmp_path / str(number)).write_text(words)
    program = a_program(tmp_path / "bin")
    program.write_text(f"""#!/bin/bash
cd {tmp_path}; echo >>calls; file=$(wc -l <calls); read -r line <$file
if [[ $line == Error* ]]; then cat $file >&2; exit 1; fi
cat $file
""")
    monkeypatch.setattr(spy, "find_tools", lambda *words: spy.Tools(str(program), None, []))
    spawn([sys.executable, "-c", POLLER], SLURM_JOB_ID=JOB, RANK="0", WORLD_SIZE="1", SLURMD_NODENAME="n0")

    (rank,) = ReportReader().read(json.dumps(report_of(capsys, samples=5, gap_s=0.0))).ranks

    own = ("exists (a.py:1)", "poll (a.py:2)", "<module> (a.py:3)")
    assert rank.samples == (own, own, own, ("loop (a.py:1)", "embedded (a.py:2)")), rank.why
    assert (tmp_path / "calls").read_text().count("\n") == len(said)


def dump(*frames: str) -> str:
    """What py-spy says of a process with one thread."""
    found = [{"name": name, "filename": "/x/a.py", "short_filename": "a.py", "line": line}
             for line, name in enumerate(frames, 1)]
    return json.dumps([{"thread_name": "MainThread", "os_thread_id": 7, "active": True, "owns_gil": True,
                        "frames": found}])


@pytest.mark.parametrize(
    ("env", "options"),
    [({"job": OTHER_JOB}, {}), ({}, {"mark": f"abc.{JOB}."}), ({}, {"node": "n1"})],
    ids=["another job", "another run", "another node"])
def test_processes_of_others_are_not_reported(
    spawn: Spawn, capsys: pytest.CaptureFixture[str], env: dict[str, str], options: dict[str, str]
) -> None:
    a_rank(spawn, 0, **env)
    assert report_of(capsys, **options)["ranks"] == []


def test_ranks_of_the_newest_attempt_are_the_ranks(spawn: Spawn, capsys: pytest.CaptureFixture[str]) -> None:
    a_rank(spawn, 0, SAFELAUNCH_MARK=f"abc.{JOB}.1")
    newest = a_rank(spawn, 0, SAFELAUNCH_MARK=f"abc.{JOB}.2")
    assert [row["pid"] for row in report_of(capsys, mark=f"abc.{JOB}.")["ranks"]] == [newest]


def test_without_py_spy_the_kernels_word_remains_with_a_hint(
    spawn: Spawn, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spy, "find_tools", lambda *words: spy.Tools(None, None, []))
    a_rank(spawn, 0)
    (row,) = report_of(capsys)["ranks"]
    assert (row["why"], row["samples"]) == ("py-spy is not on this node", []) and "pip install py-spy" in row["hint"]
    assert row["call"]


def test_rank_that_spins_and_cannot_be_read_is_reported_and_is_no_proof(
    spawn: Spawn, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an NCCL kernel keeps its core busy: nothing tells it from a training that is busy and says nothing."""
    monkeypatch.setattr(spy, "find_tools", lambda *words: spy.Tools(None, None, []))
    spawn([sys.executable, "-c", "print('up', flush=True)\nwhile True: pass"], SLURM_JOB_ID=JOB, RANK="0",
          WORLD_SIZE="1", SLURMD_NODENAME="n0")
    looks = []
    for _ in range(2):
        report = ReportReader().read(json.dumps(report_of(capsys, samples=3)))
        looks.append(Examination((report,), fold(report.ranks), judge_hang((report,))))

    weighed = weigh(looks)

    assert looks[-1].found.summary == "1 of 1 ranks cannot be read"
    assert not weighed.is_proof and "no hang so far" in weighed.why


def test_process_without_python_says_so(spawn: Spawn, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    if shutil.which("py-spy", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("py-spy is not installed beside the interpreter: pip install py-spy")
    (tmp_path / "log").write_text("up\n")
    spawn(["tail", "-f", str(tmp_path / "log")], SLURM_JOB_ID=JOB, RANK="0", SLURMD_NODENAME="n0",
          PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    (row,) = report_of(capsys)["ranks"]
    assert row["why"] == "it is not a Python process that py-spy knows"


@pytest.mark.parametrize("options", ["", "{}", '{"job": "1", "samples": "x"}'], ids=["none", "no job", "nonsense"])
def test_collector_that_fails_still_ends_well_and_says_why(options: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert collect.main(options) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["v"] == 1 and said["ranks"] == [] and "the collector failed" in said["notes"][-1]


def test_report_that_is_too_long_keeps_every_ranks_main_thread() -> None:
    stack = list(range(40))
    rows = [{"pid": n, "files": [], "below": [], "samples": [[["t", 1, 0, 0, 0]] * 6000 + [["", n, 1, 0, 1]]]}
            for n in range(100, 120)]
    report = {"notes": [], "ranks": rows, "stacks": [stack, stack[:5]], "frames": ["f"]}
    line = collect.fitted(report)
    assert len(line) < collect.MOST_BYTES
    said = json.loads(line)
    assert all(row["samples"] == [[["", row["pid"], 1, 0, 0]]] for row in said["ranks"])
    assert said["stacks"] == [stack[:5]]


def test_helper_runs_from_text_alone_under_the_systems_python(spawn: Spawn) -> None:
    pid = a_rank(spawn, 0)
    target = noderound.Target(JOB, ("n0",), is_local=True)

    collected = fan_out.start(target, {"PATH": os.environ["PATH"]}, fan_out.Depth(gpus=False)).wait()

    assert collected.silent == ()
    assert [rank.pid for rank in collected.reports[0].ranks] == [pid]


PROGRAMS = {"collect": fan_out.MODULES, "checks": nodechecks.MODULES}


@pytest.mark.parametrize("modules", PROGRAMS.values(), ids=PROGRAMS)
def test_text_of_a_program_fits_into_its_environment_and_is_python_3_9(modules: tuple[str, ...]) -> None:
    for text in noderound.NodeProgram(modules).env().values():
        assert len(text) < 128 << 10, "execve(2): MAX_ARG_STRLEN"
        ast.parse(text, feature_version=(3, 9))


@pytest.mark.parametrize("modules", PROGRAMS.values(), ids=PROGRAMS)
def test_every_module_that_a_program_needs_travels_before_the_one_that_needs_it(modules: tuple[str, ...]) -> None:
    assert len(noderound.NodeProgram(modules).env()) == len(modules)
    for index, module in enumerate(modules):
        tree = ast.parse((NODE / f"{module.replace('.', '/')}.py").read_text())
        needed = {name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in imported(node)}
        assert needed <= set(modules[:index])


def imported(node: ast.ImportFrom) -> Iterator[str]:
    """The modules of safelaunch.node that an import names, as a program does."""
    within = f"{node.module}.".partition("safelaunch.node.")[2]
    for name in node.names if node.module else ():
        path = f"{within}{name.name}"
        if f"{node.module}.".startswith("safelaunch.node."):
            yield path if (NODE / f"{path.replace('.', '/')}.py").exists() else within.rstrip(".")


def test_nodes_are_asked_in_waves_and_none_waits_for_a_slow_one() -> None:
    target = noderound.Target(JOB, tuple(f"n{number}" for number in range(6)), is_local=True)
    looks = fan_out.start(target, {"PATH": os.environ["PATH"]}, fan_out.Depth(gpus=False, samples=1, at_once=2))
    collected = looks.wait()
    assert [report.node for report in collected.reports] == list(target.nodes)


@pytest.mark.parametrize(
    ("srun", "why", "is_mute"),
    [("echo 'srun: error: Unable to contact slurm controller' >&2; exit 1", "Slurm did not answer", False),
     ("echo 'srun: error: Invalid job id specified' >&2; exit 1", "Invalid job id", False),
     ("echo 'srun: error: Timed out waiting for job step to complete' >&2; echo 'srun: Job step aborted' >&2; exit 1",
      "exit code 1", True),
     ("sleep 60", "did not answer in time", True), ("exit 0", "gave no report", True)],
    ids=["slurmctld away", "refused", "aborted", "silent", "killed"])
def test_node_without_a_report_is_listed_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, srun: str, why: str, is_mute: bool
) -> None:
    limit_s = 0.5 if srun == "sleep 60" else 30.0
    monkeypatch.setattr(fan_out, "NodeProgram", partial(noderound.NodeProgram, start_s=limit_s))
    (tmp_path / "srun").write_text(f"#!/bin/sh\n{srun}\n")
    (tmp_path / "srun").chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    monkeypatch.setenv("PATH", env["PATH"])

    collected = fan_out.start(noderound.Target(JOB, ("n0", "n1")), env, fan_out.Depth(deadline_s=limit_s)).wait()

    assert [one.node for one in collected.silent] == ["n0", "n1"] and collected.reports == ()
    assert all(why in one.why and one.is_node_mute == is_mute for one in collected.silent), collected.silent


def test_asking_many_nodes_never_holds_the_loop_that_polls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    def begin(argv: Sequence[str], env: Mapping[str, str], deadline_s: float = 60.0, cwd: str = "/") -> Command:
        begun.append(argv[1])
        return Command(["sleep", "60"], {"PATH": os.environ["PATH"]}, 0.2)

    looks = fan_out.start(noderound.Target(JOB, tuple(f"n{n}" for n in range(30)), is_local=True), {}, begin=begin)

    assert len(begun) == noderound.STARTS_A_POLL
    assert looks.poll() is None and len(begun) == 2 * noderound.STARTS_A_POLL
    assert len(looks.wait().silent) == 30


# --- disposable children ---------------------------------------------------------------------------------------------


def test_children_answer_by_function_or_program_and_a_late_one_holds_nobody() -> None:
    start_s = time.monotonic()
    outcomes = children.run_all(
        [children.Task("function", lambda: b"42", 100), children.Task("program", ["echo", "hello"], 100),
         children.Task("late", ["sleep", "600"], 0.2), children.Task("absent", ["/no/such/program"], 100),
         children.Task("bad", ["sh", "-c", "echo no >&2; exit 3"], 100)], 3, start_s + 200)
    assert time.monotonic() - start_s < 300, "the late one takes ten minutes"
    assert (outcomes["function"].out, outcomes["program"].text) == (b"42", "hello\n")
    assert outcomes["late"].late and outcomes["late"].code is None
    assert outcomes["absent"].code == 127 and "FileNotFoundError" in outcomes["absent"].said
    assert (outcomes["bad"].code, outcomes["bad"].said) == (3, "no")


def test_what_had_no_turn_before_the_deadline_is_late() -> None:
    tasks = [children.Task(number, ["sleep", "30"], 30) for number in range(4)]
    outcomes = children.run_all(tasks, 2, time.monotonic() + 0.3)
    assert [outcomes[number].late for number in range(4)] == [True] * 4


def test_walk_goes_on_behind_an_item_that_hangs() -> None:
    def look(item: int) -> int:
        if item in (3, 7):
            time.sleep(60)
        return item * 2

    found, stuck = children.walk(range(10), look, 2.0, time.monotonic() + 60)

    assert stuck == [3, 7] and found == {n: n * 2 for n in range(10) if n not in (3, 7)}


def test_walk_goes_on_behind_an_item_that_kills_its_child() -> None:
    def look(item: int) -> int:
        if item == 1:
            os._exit(9)
        return item

    assert children.walk(range(3), look, 60.0, time.monotonic() + 60) == ({0: 0, 2: 2}, [1])


def test_walk_does_not_take_a_child_that_computes_for_one_that_hangs() -> None:
    """As one that waits for a processor, on a node whose cores are all busy."""
    def look(item: int) -> int:
        end_s = time.process_time() + 0.3 * (item == 1)
        while time.process_time() < end_s:
            pass
        return item

    assert children.walk(range(3), look, 0.1, time.monotonic() + 60) == ({0: 0, 1: 1, 2: 2}, [])


def test_child_that_has_answered_in_time_is_not_late_where_its_parent_stood_still(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = children._receive

    def stand_still(*words: Any) -> None:
        time.sleep(1.0)
        receive(*words)

    monkeypatch.setattr(children, "_receive", stand_still)
    task = children.Task("long", lambda: b"x" * 65_000, 0.5)   # what a pipe holds: it has ended by then
    outcome = children.run_all([task], 1, time.monotonic() + 60)["long"]
    assert (len(outcome.out), outcome.code, outcome.late) == (65_000, 0, False)


def test_exit_code_of_a_child_is_waited_for_that_ends_a_moment_after_its_output() -> None:
    task = children.Task("slow", ["sh", "-c", "echo said; exec >&- 2>&-; sleep 0.3; exit 3"], 30)
    outcome = children.run_all([task], 1, time.monotonic() + 60)["slow"]
    assert (outcome.text, outcome.code, outcome.late) == ("said\n", 3, False)


def test_child_holds_no_file_of_its_parent() -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    outcome = children.run_all([children.Task("fds", lambda: json.dumps(os.listdir("/proc/self/fd")).encode(), 60)], 1,
                               time.monotonic() + 60)["fds"]
    os.close(reader)
    os.close(writer)
    assert set(json.loads(outcome.out)) <= {"0", "1", "2", "3"}, "3 is the listing itself"


# --- whose processes, and which are ranks ----------------------------------------------------------------------------


def table_of(*rows: tuple[Any, ...]) -> dict[int, proctable.Process]:
    """pid → process, from (pid, parent, comm, words, env)."""
    table = {}
    for pid, parent, comm, words, env in rows:
        process = proctable.Process(pid, parent, "S", comm, pid, 0)
        process.words, process.env = words.split(), env
        table[pid] = process
    return table


STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0"}


def test_ranks_of_torchrun_are_its_children_and_never_itself_nor_their_workers() -> None:
    table = table_of(
        (9, 1, "slurmstepd", "", None), (10, 9, "bash", "bash -c x", STEP),
        (11, 10, "torchrun", "python /v/bin/torchrun --nnodes 2", STEP),
        (12, 11, "python", "python train.py", {**STEP, "RANK": "4", "LOCAL_RANK": "0"}),
        (13, 11, "bash", "bash -c train", {**STEP, "RANK": "5", "LOCAL_RANK": "1"}),
        (14, 13, "python", "python train.py", {**STEP, "RANK": "5", "LOCAL_RANK": "1"}),
        (15, 14, "pt_data_worker", "python train.py", {**STEP, "RANK": "5", "LOCAL_RANK": "1"}))
    members = {pid: process for pid, process in table.items() if pid >= 10}

    ranks = proctable.find_ranks(table, members)

    assert [(rank.number, rank.process.pid, [one.pid for one in rank.below]) for rank in ranks] == [
        (4, 12, []), (5, 14, [15])]


def test_ranks_of_srun_are_below_guard_shell_and_pipes() -> None:
    env = {**STEP, "SLURM_PROCID": "3"}
    table = table_of(
        (10, 1, "bash", "bash -c x", env), (11, 10, "python3", "python3 -S -c guard", {**env, "guard": "1"}),
        (12, 10, "sed", "sed s", env), (13, 11, "bash", "bash -c y", env), (14, 13, "python", "python train.py", env))
    (rank,) = proctable.find_ranks(table, table)
    assert (rank.number, rank.process.pid) == (3, 14)


def test_batch_script_is_no_rank_where_there_is_a_step() -> None:
    batch = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0"}
    table = table_of((10, 1, "python", "python watch.py", batch), (11, 1, "python", "python train.py", STEP))
    assert [rank.process.pid for rank in proctable.find_ranks(table, table)] == [11]


def test_rank_that_hides_its_environment_gets_the_number_that_is_missing() -> None:
    rows = [(20 + n, 10, "python", "python train.py", {**STEP, "RANK": str(8 + n), "LOCAL_RANK": str(n),
                                                       "LOCAL_WORLD_SIZE": "4"}) for n in (0, 1, 3)]
    table = table_of((10, 1, "torchrun", "python /v/bin/torchrun", STEP), *rows, (22, 10, "python", "", None))
    ranks = proctable.find_ranks(table, table)
    assert [(rank.number, rank.process.pid) for rank in ranks] == [(8, 20), (9, 21), (10, 22), (11, 23)]


def test_words_on_parallel_groups_are_reported_however_long_the_command_line_is(
    spawn: Spawn, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*(f"--number={n}" for n in range(600)), "--tensor-model-parallel-size", "4", "--pipeline-parallel=2"]
    pid = spawn([sys.executable, "-c", SLEEPER, *words], SLURM_JOB_ID=JOB, RANK="0", SLURMD_NODENAME="n0").pid
    (row,) = report_of(capsys)["ranks"]
    assert (row["pid"], row["parallel"]) == (pid, "--tensor-model-parallel-size 4 --pipeline-parallel=2")


# --- what the kernel says --------------------------------------------------------------------------------------------


def test_call_is_shown_with_its_file_and_mount(spawn: Spawn) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:   # files below /dev are devices, and not shown
        pipe = f"{folder}/pipe"
        os.mkfifo(pipe)
        writer = os.open(pipe, os.O_RDWR)
        pid = spawn([sys.executable, "-c", f"print('up', flush=True)\nopen({pipe!r}, 'rb').read()"]).pid
        wait_until(lambda: evidence.look(pid)["call"] == "read", 60, "it does not read")
        said = evidence.look(pid)
        os.close(writer)
    assert said["path"] == pipe and pipe.startswith(said["mount"])
    assert said["wchan"] and said["state"] == "S"
    assert {"fd": "3", "path": pipe, "mount": said["mount"], "fs": said["fs"]} in said["files"]


def test_path_of_a_call_on_a_frozen_mount_is_read_from_the_process_and_not_touched(
    spawn: Spawn, fuse_mount: FuseMount
) -> None:
    code = f"import os\nprint('up', flush=True)\ninput()\nos.stat({str(fuse_mount.path / 'data.bin')!r})"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None and process.stdout.readline()
    fuse_mount.freeze()
    process.stdin.write(b"\n")
    process.stdin.flush()
    try:
        wait_until(lambda: bool(evidence.look(process.pid)["path"].endswith("data.bin")), 60, "it does not hang")
        said = evidence.look(process.pid)
        assert said["mount"] == str(fuse_mount.path) and said["fs"].startswith("fuse")
        assert said["call"] in ("newfstatat", "stat", "statx")
        tasks = devices.mount_tasks({str(fuse_mount.path): said["fs"], "/": "ext4"}, [])
        (outcome,) = children.run_all(tasks, 4, time.monotonic() + 5).values()
        assert devices.read_mount(outcome) == "late"
    finally:
        fuse_mount.thaw()
        process.wait(60)
        process.stdin.close()
        process.stdout.close()


CHILD = """
import os, sys, time
print('up', flush=True)
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        end, out = time.process_time() + 0.6, os.open(os.devnull, os.O_WRONLY)
        while time.process_time() < end:
            os.write(out, b'x' * (1 << 20))
        os._exit(0)
    os.waitpid(pid, 0)
    print('over', flush=True)
"""


def test_what_a_child_has_done_still_counts_when_it_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None and process.stdout.readline() == b"up\n"
        before = evidence.count_life(process.pid, [])
        process.stdin.write(b"go\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"over\n"

        after = evidence.count_life(process.pid, [])

        assert after[0] - before[0] > 1 << 20, "its bytes"
        assert after[2] - before[2] >= 0.5, "compilers live for less than the time between two looks"


def test_longest_mount_point_holds_a_path() -> None:
    mounts = {1: ("/", "ext4"), 2: ("/gpfs", "gpfs"), 3: ("/gpfs/fs1", "gpfs"), 4: ("/gpfs2", "nfs")}
    assert evidence.mount_of("/gpfs/fs1/log", mounts) == ("/gpfs/fs1", "gpfs")
    assert evidence.mount_of("/gpfs2/x", mounts) == ("/gpfs2", "nfs")
    assert evidence.mount_of("/tmp/x", mounts) == ("/", "ext4")


# --- the tools -------------------------------------------------------------------------------------------------------

PYSTACK = """\
Traceback for thread 16375 (python) [] (most recent call last):
    (Python) File "/usr/lib/python3.11/threading.py", line 995, in _bootstrap
        self._bootstrap_inner()
    (Python) File "/v/lib/python3.11/site-packages/torch/x.py", line 3, in run
        work()

Traceback for thread 16370 (python) [Has the GIL] (most recent call last):
    (Python) File "/tmp/train.py", line 6, in <module>
        outer()
"""


def test_dump_of_pystack_is_read_as_one_of_py_spy() -> None:
    first, second = spy.read_dump(PYSTACK)
    assert first["frames"] == ["run (torch/x.py:3)", "_bootstrap (threading.py:995)"]
    assert (second["tid"], second["gil"], second["frames"]) == (16370, True, ["<module> (/tmp/train.py:6)"])


def test_pystack_reads_a_process_where_there_is_no_py_spy(spawn: Spawn) -> None:
    program = Path(sys.executable).with_name("pystack")
    if not program.exists():
        pytest.skip("pystack is not installed beside the interpreter: pip install pystack")
    pid = a_rank(spawn, 0)
    task = spy.dump_task(pid, "S", spy.Tools(None, str(program), []), native=False)
    assert task is not None
    outcome = children.run_all([task], 1, time.monotonic() + 120)[pid]
    (thread,) = spy.read_dump(outcome.text)
    assert [frame.split(" (")[0] for frame in thread["frames"]] == ["inner", "outer", "<module>"], outcome.said


@pytest.mark.parametrize(
    ("state", "said", "why"),
    [
        ("S", "Permission Denied: Try running again", "Permission Denied"),
        ("D", "Error: Failed to suspend process Reason: EPERM: Operation not permitted", "D state"),
        ("Z", "", "zombie"),
        ("S", "Error: Bad address (os error 14)", "not a Python process"),
    ],
    ids=["refused", "seeds: EPERM in D state", "zombie", "no Python"])
def test_reason_for_a_missing_stack_is_told(state: str, said: str, why: str) -> None:
    process = proctable.Process(os.getpid(), 1, state, "python", 0, 0)
    outcome = children.Outcome(b"", said.encode(), 1, False)
    assert why in spy.why_not(process, spy.Tools("/x/py-spy", None, []), outcome)[0]


# prctl(2): no new privileges, then a filter of one instruction, which allows everything (linux/filter.h, seccomp.h).
FILTERED = """import ctypes, struct, time
code = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', 1, ctypes.addressof(code)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
print('up', flush=True)
time.sleep(600)
"""


def test_filter_of_system_calls_is_named_as_the_reason_with_what_helps(spawn: Spawn) -> None:
    pid = spawn([sys.executable, "-c", FILTERED]).pid
    outcome = children.Outcome(b"", b"Error: Permission Denied (os error 1)", 1, False)
    process = proctable.read_stat(f"/proc/{pid}/stat")
    why, hint = spy.why_not(process, spy.Tools("/x/py-spy", None, []), outcome)
    assert "seccomp" in why and "--cap-add SYS_PTRACE" in hint


@pytest.mark.parametrize("state", ["D", "T", "Z"])
def test_process_that_cannot_be_stopped_is_never_dumped_with_a_pause(state: str) -> None:
    tools = spy.Tools("/x/py-spy", "/x/pystack", [])
    failed = children.Outcome(b"", b"Error: Failed to merge native and python frames", 1, False)
    task = spy.dump_task(7, state, tools, native=True)
    assert task is None or "--nonblocking" in task.work  # type: ignore[operator]
    assert spy.second_task(7, state, tools, failed) is None


def test_py_spy_on_a_frozen_filesystem_is_told_from_one_that_is_not_there(fuse_mount: FuseMount) -> None:
    fuse_mount.freeze()
    until_s = time.monotonic() + 4 * spy.FIND_S
    tools = spy.Tools(None, None, [])
    try:
        found = spy._find("py-spy", [str(fuse_mount.path)], until_s, tools.stuck)
    finally:
        fuse_mount.thaw()
    assert found is None and tools.stuck == [str(fuse_mount.path / "py-spy")]
    process = proctable.Process(os.getpid(), 1, "S", "python", 0, 0)
    assert "frozen filesystem" in spy.why_not(process, tools, None)[0]


def a_program(folder: Path, name: str = "py-spy") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)
    return folder / name


@pytest.fixture
def local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This user's own folder on the node's disk, before it is made."""
    monkeypatch.setenv("SAFELAUNCH_LOCAL_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setattr(spy, "FIND_S", 30.0)
    return tmp_path / f"safelaunch-{os.getuid()}"


def test_py_spy_is_kept_on_the_nodes_own_disk(tmp_path: Path, local_folder: Path) -> None:
    env = {"PATH": str(a_program(tmp_path / "shared").parent)}
    assert spy.keep_local_copy([env], []) == str(local_folder / "py-spy")
    shutil.rmtree(tmp_path / "shared")   # as a frozen filesystem, only quicker
    assert spy.find_tools([env], [], time.monotonic() + 60).py_spy == str(local_folder / "py-spy")


def test_stacks_are_read_while_the_filesystem_that_py_spy_was_installed_on_is_frozen(
    fuse_mount: FuseMount, spawn: Spawn, capsys: pytest.CaptureFixture[str], local_folder: Path,
    monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Path(sys.executable).with_name("py-spy")
    if not program.exists():
        pytest.skip("py-spy is not installed beside the interpreter: pip install py-spy")
    monkeypatch.delenv("SAFELAUNCH_PYTHON", raising=False)
    shutil.copy(program, a_program(fuse_mount.behind / "bin"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    path = f"{fuse_mount.path}/bin:/usr/bin:/bin"
    spawn(["python3", "-c", SLEEPER], SLURM_JOB_ID=JOB, RANK="0", SLURMD_NODENAME="n0", PATH=path)
    report_of(capsys, samples=0, keep_tool=True)

    fuse_mount.freeze()
    said = report_of(capsys, samples=1)
    fuse_mount.thaw()

    (rank,) = ReportReader().read(json.dumps(said)).ranks
    assert rank.samples and rank.samples[0][0] == "inner (<string>:3)", said["notes"]
    assert said["tools"]["py_spy"] == str(local_folder / "py-spy") and not said["tools"]["stuck"]


def test_the_software_of_a_rank_is_what_its_own_python_says(
    tmp_path: Path, spawn: Spawn, capsys: pytest.CaptureFixture[str]
) -> None:
    for package, version in (("torch", "2.5.1+cu124"), ("nvidia_nccl_cu13", "2.21.5")):   # as `setup` brings them
        info = tmp_path / f"{package}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    spawn(["sh", "-c", "echo up; exec sleep 600"], SLURM_JOB_ID=JOB, RANK="0", SLURMD_NODENAME="n0")
    assert report_of(capsys, samples=0, software=True)["software"] is None   # no rank is a Python
    a_rank(spawn, 1, PYTHONPATH=str(tmp_path))

    assert report_of(capsys, samples=0)["software"] is None   # it was not asked for
    assert report_of(capsys, samples=0, software=True)["software"] == {
        "python": platform.python_version(), "executable": sys.executable, "torch": "2.5.1+cu124", "nccl": "2.21.5"}


def test_a_python_that_gives_no_answer_costs_its_deadline_and_tells_nothing(
    tmp_path: Path, spawn: Spawn, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranksoftware, "ASK_S", 0.3)
    (tmp_path / "sitecustomize.py").write_text("import os, time\nos.environ.get('RANK') or time.sleep(600)\n")
    a_rank(spawn, 0, PYTHONPATH=str(tmp_path))

    said = report_of(capsys, samples=0, software=True)

    assert said["software"] is None and not said["notes"]


def test_newer_py_spy_takes_the_place_of_the_copy(tmp_path: Path, local_folder: Path) -> None:
    program = a_program(tmp_path / "shared")
    env = {"PATH": str(program.parent)}
    spy.keep_local_copy([env], [])
    program.write_text("#!/bin/sh\necho newer\n")
    spy.keep_local_copy([env], [])
    assert "newer" in (local_folder / "py-spy").read_text()


def test_copy_that_a_full_disk_ends_takes_no_space(
    tmp_path: Path, local_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy_half(source: BinaryIO, target: BinaryIO) -> None:
        target.write(b"#!/bin")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    env = {"PATH": str(a_program(tmp_path / "shared").parent)}
    monkeypatch.setattr(shutil, "copyfileobj", copy_half)
    with pytest.raises(OSError, match="No space left"):
        spy.keep_local_copy([env], [])
    assert list(local_folder.iterdir()) == []


def test_folder_of_others_gets_no_copy_and_its_programs_are_not_run(tmp_path: Path, local_folder: Path) -> None:
    a_program(local_folder)
    local_folder.chmod(0o777)
    env = {"PATH": str(a_program(tmp_path / "shared").parent)}
    assert spy.keep_local_copy([env], []) == ""
    assert spy.find_tools([], [], time.monotonic() + 60).py_spy is None


def test_pystack_reads_what_py_spy_does_not_know() -> None:
    failed = children.Outcome(b"", b"Error: Failed to find python version from target process", 1, False)
    task = spy.second_task(7, "S", spy.Tools("/x/py-spy", "/x/pystack", []), failed)
    assert task is not None and task.work == ["/x/pystack", "remote", "--no-block", "7"]


# --- GPUs and flight recorders ---------------------------------------------------------------------------------------


def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, limit_s: float = 60.0) -> dict[str, Any]:
    """What is read of an nvidia-smi that is this shell script."""
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{text}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setattr(devices, "SYSTEM_PATH", str(tmp_path))
    monkeypatch.setattr(devices, "SMI_S", 60.0)
    outcomes = children.run_all(devices.gpu_tasks(), 2, time.monotonic() + limit_s)
    return devices.read_gpus(outcomes["gpus"], outcomes["apps"])


def test_gpus_are_read_with_those_who_use_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = smi(tmp_path, monkeypatch, """case $1 in
*compute-apps*) echo "4242, GPU-aa, 1000";;
*) echo "0, GPU-aa, 100, 15995, 81920, 1410, 87.12, 30, P0"; echo "1, GPU-bb, 0, 22377, 81920, 1410, [N/A], 28, P0";;
esac""")
    assert said["answer"] == "ok"
    assert [(gpu["util"], gpu["power_w"], gpu["pids"]) for gpu in said["gpus"]] == [
        (100.0, 87.12, [4242]), (0.0, None, [])]


@pytest.mark.parametrize(
    ("text", "answer"),
    [("sleep 60", "late"), ("exit 127", "absent"),
     ("echo 'Unable to determine the device handle for GPU0000:90:00.0: GPU is lost.'; exit 15", "GPU is lost")],
    ids=["hangs", "absent", "fallen off the bus"])
def test_nvidia_smi_without_an_answer_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, answer: str
) -> None:
    assert answer in smi(tmp_path, monkeypatch, text, 0.8 if answer == "late" else 60.0)["answer"]


def test_one_idle_gpu_among_spinning_ones_is_seen_of_real_processes(
    spawn: Spawn, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = [a_rank(spawn, 0), a_rank(spawn, 1)]
    (tmp_path / "nvidia-smi").write_text(f"""#!/bin/sh
case $1 in
*compute-apps*) echo "{pids[0]}, GPU-aa, 70000"; echo "{pids[1]}, GPU-bb, 70000";;
*) echo "0, GPU-aa, 100, 70000, 81920, 1410, 120, 40, P0"; echo "1, GPU-bb, 0, 70000, 81920, 210, 70, 28, P0";;
esac""")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setattr(devices, "SYSTEM_PATH", f"{tmp_path}:/usr/bin:/bin")

    report = ReportReader().read(json.dumps(report_of(capsys, gpus=True)))

    assert [rank.gpu_util for rank in report.ranks] == [100.0, 0.0] and report.idle_gpus == ("1",)
    assert "gpu_pattern" in judge_hang([report]).witnesses


RAS = """Job summary
===========
  Nodes  Processes
      4          8

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node n3 managing GPU 5
"""
RAS_SERVER = f"""import socket
with socket.create_server(('127.0.0.1', {devices.RAS_PORT})) as door:
    print('up', flush=True)
    while True:
        line, _ = door.accept()
        if line.recv(100) == b'verbose status\\n':
            line.sendall({RAS.encode()!r})
        line.close()
"""


def test_ras_of_nccl_is_asked_where_a_rank_listens_and_its_complaints_are_shown(
    spawn: Spawn, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", devices.RAS_PORT), timeout=1):
        pytest.skip("somebody listens on RAS's port here")
    spawn([sys.executable, "-c", RAS_SERVER], SLURM_JOB_ID=JOB, RANK="0", SLURMD_NODENAME="n0")
    report = ReportReader().read(json.dumps(report_of(capsys)))
    assert stacktext.ras_lines(report.ras) == [
        "INCOMPLETE", "Missing communicator data from 1 job process", "Process 3487984 on node n3 managing GPU 5"]


def test_port_of_ras_that_is_not_the_jobs_own_is_not_asked() -> None:
    assert devices.ras_task([]) is None


def test_flight_recorders_newest_collective_is_read() -> None:
    entries = [{"collective_seq_id": n, "profiling_name": "nccl:all_reduce", "state": state, "is_p2p": False,
                "process_group": ("0", "default_pg")} for n, state in ((7, "completed"), (8, "started"))]
    said = devices.read_flight(pickle.dumps({"version": "2.4", "entries": entries}))
    assert said["last"]["seq"] == 8 and [one["state"] for one in said["open"]] == ["started"]
    assert said["last"]["group"] == "default_pg"


# Written by PyTorch 2.13 (torch._C._distributed_c10d._dump_fr_trace after three all_reduce over gloo).
FLIGHT = (
    "eNqlU8tu00AUTZPQd4FSoKUtpVDahkfjJA0PIYRYIdGIsGBjCUWWa9/6WnU8vp4ZUJGQWCHKjg/hF/gGdnwBCPEHrODOJGkL6gqyyX2c63PuY94U"
    "X1fckUKh8AJyGYuUCm6ZvUa1XqMhd4zNLPICke7EERkoBwpUYsOgUr8LVMaSdUKQAZ1g5wQ7uZ/uShp2S2w/r3VoRGv3NNuB6Ha9JN72BnSjXNBn"
    "kcpXWtIYf3yIIzUaZ2uOrcSXyoOUNGgIWUySQKDiF0ATrZI7OwBwea7+zE9u/eKfe2EAYfYsgb9AU60iizMjgFTlMUg62akw8zBHdnLuUNIpE8Cy"
    "O84hP0m8HEIdAJ12Rw0mTsAOYtp9yq4jMuXIRIk8QIc7dbI9hSLdrNbrjowVbGR+sOtHIJ0eJIwls25rVnXU9oJ6Laxme3TGDjeJU6CZJx8nNZ21"
    "Uozel7mfZZDTOZx2t/6T2tB5iYgiyA3reZxpPdM0a7lMl/e7ItQJPKA5Jps0ZKqbOY+dHQu/wPARTfNgd5lDIPLQi0NaaBXsOfB22Vtkb8p4uQhA"
    "Si/Khc7oIo7bwYaw4+tEeVlES2/dCY4ozMEPPTvcS3YfvYZo2dL00/zhy+4p9uvNWvNu/U7z9q3N2ubtu3TFnbYXN9i0J4EMeqU1ZAmzRjYIXe3r"
    "FJnxVhlwsqeTlxunUU/CmmWJEiHuHTmCdRtVcRe8gPWY1aWSKu9Hvyx+/vq9+WPOthKnmeYTjV/xNV3rVDqVVhnAzrGXCdVexqnrnYrV8SgRvqIb"
    "PYTQ6rD45kHx1GGqX73RqSDXmA+YtwRUtXOSAYLZXUiOOz/QyrsPBD9Cljt4OCy71nYXj0EcvhvG1Nv2+HJQMeeo8c4O05SwGq8raXPr4cuFgt1X"
    "LD2eMjX3NR8SvyI8i7M4D7jQGkK+BuTd49JbvITLeBmv4EqriLwKXOX/NVxHnuKnn9PfzBTxYGp43baJB5PAXt9YRQdrbay3sfEOeyLwGObi8cyl"
    "PnNpwPxhceYfmPePMIOmW9XfgBGg/Q==")


def test_flight_recorder_of_a_real_pytorch_is_read() -> None:
    said = devices.read_flight(zlib.decompress(base64.b64decode(FLIGHT)))
    assert (said["last"]["seq"], said["last"]["what"], said["last"]["group"]) == (3, "gloo:all_reduce", "default_pg")
    assert [one["seq"] for one in said["open"]] == [3], "gloo's are never completed, only retired"


def test_flight_recorder_in_json_is_read() -> None:
    text = json.dumps({"version": "2.10", "entries": [{"collective_seq_id": 4, "state": "scheduled", "retired": False,
                                                       "process_group": ["0", "default_pg"]}]})
    assert devices.read_flight(text.encode())["last"]["seq"] == 4


@pytest.mark.parametrize("value", [{"a": [1, 2.5, None, True]}, [("x", {}), -70000, 2**70, "ü", ()], "text", {}],
                         ids=["dict", "list", "text", "empty"])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_plain_values_come_out_of_a_pickle_as_they_went_in(value: object, protocol: int) -> None:
    assert plain.read(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_pickle_that_holds_code_is_named_and_not_run(tmp_path: Path, protocol: int) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    dump = tmp_path / "trace_3"
    dump.write_bytes(pickle.dumps({"entries": [Trap()]}, protocol))
    task = devices.flight_task("flight", {"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "trace_")}, 3, 0.0)
    said = json.loads(children.run_all([task], 1, time.monotonic() + 60)["flight"].text)
    assert said["path"] == str(dump) and "more than plain values" in said["why"] and said["last"] is None
    assert not (tmp_path / "sprung").exists()


@given(data=st.binary(max_size=200))
def test_broken_dump_is_an_error_and_nothing_else(data: bytes) -> None:
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        devices.read_flight(data)
    with contextlib.suppress(ValueError):
        plain.read(b"\x80\x02" + data)
