"""What the script does on each node, under the local stand-in for srun: no Slurm, no leader, real processes."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from safelaunch.guard.io import guardcode
from safelaunch.run.io.local import srun_words
from safelaunch.run.plan import Plan
from safelaunch.script.script import render
from tests.lease import leased
from tests.pure.script.test_script import TEMPLATE, plan_of
from tests.sandboxes import wait_until

LOCAL = "name: here\ncluster: local\nrun_dir: /nowhere/here\ncommand: 'true'\n"
# Where the guard runs, and where it cannot: the training must not notice.
PLAIN: dict[str, str] = {}
WHOLE = {"SAFELAUNCH_GUARD": guardcode.guard_text(), "SAFELAUNCH_TOKEN": "secret",
         "SAFELAUNCH_CONTROL": "127.0.0.1:1", "SAFELAUNCH_RECORD": "/nowhere/record.json"}
CODE = subprocess.run([guardcode.PYTHON, "-I", "-S", "-c", guardcode.COMPILE], input=WHOLE["SAFELAUNCH_GUARD"],
                      capture_output=True, text=True, check=True).stdout
# The text would fail: it is the code that runs.
COMPILED = {**WHOLE, "SAFELAUNCH_GUARD": "raise SystemExit(3)", "SAFELAUNCH_GUARD_CODE": CODE}
BROKEN = {
    "its import fails": {**WHOLE, "SAFELAUNCH_GUARD": "import no_such_module"},
    "it is no Python": {**WHOLE, "SAFELAUNCH_GUARD": "def main(:"},
    "it has no main": {**WHOLE, "SAFELAUNCH_GUARD": "pass"},
    "it exits": {**WHOLE, "SAFELAUNCH_GUARD": "raise SystemExit(3)"},
    "it lacks what it needs": {key: value for key, value in WHOLE.items() if key != "SAFELAUNCH_RECORD"},
}
DAMAGED = {**WHOLE, "SAFELAUNCH_GUARD_CODE": CODE[:-40] + "A" * 40}
ANY_GUARD = {"plain": PLAIN, "guarded": WHOLE, "compiled": COMPILED, "compiled and damaged": DAMAGED, **BROKEN}
any_guard = pytest.mark.parametrize("env", ANY_GUARD.values(), ids=ANY_GUARD.keys())
with_and_without = pytest.mark.parametrize("env", [PLAIN, WHOLE, COMPILED], ids=["plain", "guarded", "compiled"])

TWO_BY_TWO: dict[str, Any] = {
    "nodelist": "local[0-1]", "nodes": 2, "ntasks_per_node": 2, "launch": plan_of(LOCAL).launch._replace(by="srun")}

Start = Callable[..., "subprocess.Popen[bytes]"]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts one attempt of a command; whatever is left of it goes with the test."""
    begun: list[subprocess.Popen[bytes]] = []

    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "safelaunch").symlink_to(Path(guardcode.__file__).parents[2])   # as beside a supervisor

    def start(command: str, *resume: str, environ: dict[str, str] = PLAIN, nodelist: str = "local0",
              first: tuple[str, ...] = (), srun: tuple[str, ...] | None = None, groups: str = "",
              **changes: Any) -> subprocess.Popen[bytes]:
        plan: Plan = plan_of(LOCAL)._replace(command=textwrap.dedent(command), **changes)
        script = tmp_path / "job.sbatch"
        text = render(TEMPLATE, plan, python="/none/python", library=(), srun=srun or srun_words())
        if groups:   # what the kernel says of each process's control groups
            (tmp_path / "cgroup").write_text(groups)
            place = ("/proc/self/cgroup", str(tmp_path / "cgroup"))
            text, environ = text.replace(*place), {key: value.replace(*place) for key, value in environ.items()}
        script.write_text(text)
        clean = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "SLURM_JOB_NODELIST": nodelist, "SLURM_JOB_ID": "77",
                 "SAFELAUNCH_MASTER_ADDR": "127.0.0.1", **leased()}
        argv = [*first, "bash", str(script), "attempt", *resume]
        with (tmp_path / "out").open("w") as out:
            begun.append(subprocess.Popen(argv, cwd=tmp_path, env=clean | environ, stdin=subprocess.DEVNULL, stdout=out,
                                          stderr=subprocess.STDOUT, start_new_session=True))
        return begun[-1]

    yield start
    for process in begun:
        if process.poll() is None:
            process.kill()
        process.wait()


@pytest.fixture
def run(start: Start, tmp_path: Path) -> Run:
    """Runs one attempt to its end: all that it said, and its exit code."""

    def run(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        process = start(*words, **more)
        process.wait(timeout=200)
        return subprocess.CompletedProcess(list(words), process.returncode, (tmp_path / "out").read_text(), "")

    return run


@any_guard
@pytest.mark.parametrize("code", [0, 1, 97])
def test_the_attempts_exit_code_is_the_trainings(run: Run, env: dict[str, str], code: int) -> None:
    done = run(f"echo trained; exit {code}", environ=env)
    assert done.returncode == code
    assert "[local0:0]:trained\n" in done.stdout


def test_a_training_that_ends_at_once_keeps_its_exit_code(run: Run) -> None:
    """Bash forgets the end of a child that comes with a trapped signal: here with the word that its guard runs."""
    ends = {**WHOLE, "SAFELAUNCH_GUARD": "import os; os._exit(97)"}
    assert [run("true", environ=ends).returncode for _ in range(40)] == [97] * 40


@with_and_without
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT], ids=lambda number: number.name)
def test_a_training_that_dies_of_a_signal_gives_128_and_its_number(
    run: Run, env: dict[str, str], number: signal.Signals
) -> None:
    assert run(f"kill -{number.value} $$", environ=env).returncode == 128 + number


@pytest.mark.parametrize("env", BROKEN.values(), ids=BROKEN.keys())
def test_the_guards_secrets_do_not_reach_the_training(run: Run, env: dict[str, str]) -> None:
    assert "SAFELAUNCH_TOKEN" not in run("env", environ=env).stdout


@any_guard
def test_the_training_gets_the_signal_dispositions_that_srun_gives(run: Run, env: dict[str, str]) -> None:
    # What the tests' own caller ignores, a child inherits (make passes on signal 32): a shell here has the same.
    plain = subprocess.run(["bash", "-c", "grep SigIgn: /proc/self/status"], capture_output=True, text=True, check=True)
    assert plain.stdout.strip() in run("grep SigIgn: /proc/self/status", environ=env).stdout


@with_and_without
def test_every_line_of_a_rank_that_is_killed_arrives(run: Run, env: dict[str, str]) -> None:
    done = run("python3 -uc 'for n in range(10_000): print(n)'; kill -KILL $$", environ=env)
    assert done.returncode == 137
    assert re.findall(r"\[local0:0\]:(\d+)\n", done.stdout) == [str(n) for n in range(10_000)]


@with_and_without
def test_a_training_that_answers_term_has_its_last_words_and_its_own_exit_code(
    start: Start, tmp_path: Path, env: dict[str, str]
) -> None:
    process = start("trap 'for n in 1 2 3; do sleep 0.1; echo saved $n; done; exit 5' TERM; echo up; "
                    "for n in {1..6000}; do sleep 0.1; done", environ=env)
    wait_until(lambda: "up" in (tmp_path / "out").read_text(), 60, "the training did not start")
    for one in psutil.Process(process.pid).children(recursive=True)[1:]:   # as slurmstepd does: the step, and not srun
        with contextlib.suppress(psutil.NoSuchProcess):   # one of its sleeps, over by now
            one.terminate()
    assert process.wait(timeout=60) == 5
    assert re.findall("saved (.)", (tmp_path / "out").read_text()) == ["1", "2", "3"]


@pytest.mark.parametrize("env", [PLAIN, WHOLE], ids=["plain", "guarded"])   # with another path in the text
@pytest.mark.parametrize(
    "groups", ["6:freezer:/slurm/uid_1001/job_77/step_0\n", "0::/slurm/job_77/step_0/user/task_0\n"], ids=["v1", "v2"])
@pytest.mark.parametrize("name", ["TERM", "USR1"])
def test_signals_that_slurm_sends_to_the_task_alone_reach_a_training_that_handles_them(
    start: Start, tmp_path: Path, env: dict[str, str], groups: str, name: str
) -> None:
    """As proctrack/cgroup does: the first process of a task is told, which is the shell around the training."""
    program = (f"import signal, sys, time; signal.signal(signal.SIG{name}, lambda *_: sys.exit(5)); print('up'); "
               "time.sleep(600)")
    process = start(f'python3 -uc "{program}"', environ=env, groups=groups)
    wait_until(lambda: "up" in (tmp_path / "out").read_text(), 60, "the training did not start")
    below = psutil.Process(process.pid).children(recursive=True)
    task = next(one for one in below if "safelaunch-node" in one.cmdline() and one.name() == "bash")
    task.send_signal(getattr(signal, f"SIG{name}"))
    assert process.wait(timeout=60) == 5


@with_and_without
def test_a_process_that_the_training_leaves_behind_does_not_keep_the_attempt(run: Run, env: dict[str, str]) -> None:
    done = run("sleep 1000 & echo left $!; exit 4", environ=env)   # for longer than it is waited for
    left = int(re.findall(r"left (\d+)", done.stdout)[0])
    assert done.returncode == 4
    is_left = psutil.pid_exists(left) and psutil.Process(left).status() != psutil.STATUS_ZOMBIE
    assert is_left == (env is PLAIN), "a guard ends it; without one slurmstepd does"
    if is_left:
        os.kill(left, signal.SIGKILL)


def test_a_progress_bars_carriage_returns_become_lines(run: Run) -> None:
    assert run(r"printf '10%%\r20%%\rdone\n'").stdout == "[local0:0]:10%\n[local0:0]:20%\n[local0:0]:done\n"


def test_each_tasks_lines_carry_its_host_and_rank(run: Run) -> None:
    done = run("echo up", **TWO_BY_TWO)
    assert sorted(done.stdout.splitlines()) == [
        "[local0:0]:up", "[local0:1]:up", "[local1:2]:up", "[local1:3]:up"]


def test_a_training_may_open_as_many_files_as_slurm_allows_whatever_its_leader_may(run: Run) -> None:
    done = run("echo ${SAFELAUNCH_FILES-none}; ulimit -S -n", environ={"SAFELAUNCH_FILES": "77"})
    assert done.stdout == "[local0:0]:none\n[local0:0]:77\n"


def test_srun_as_launcher_gives_torchs_variables(run: Run) -> None:
    done = run("echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR", **TWO_BY_TWO)
    said = sorted(line.partition(":")[2].partition(":")[2] for line in done.stdout.splitlines())
    assert said == [f"{rank}/4 {rank % 2}/2 127.0.0.1" for rank in range(4)]


def test_the_master_port_is_a_fresh_one_for_each_attempt(run: Run) -> None:
    ports = {run("echo port $MASTER_PORT", environ={"SAFELAUNCH_ATTEMPT": str(number)}).stdout for number in (1, 2, 3)}
    assert len(ports) == 3
    assert all(20_000 <= int(said.split()[-1]) < 30_000 for said in ports)


def test_a_port_that_the_leader_chose_is_taken(run: Run) -> None:
    assert "port 4711\n" in run("echo port $MASTER_PORT", environ={"SAFELAUNCH_MASTER_PORT": "4711"}).stdout


def test_the_command_gets_the_words_that_tell_where_to_resume(run: Run) -> None:
    done = run("""printf '<%s>' "${RESUME_ARGS[@]}"; echo""", "--load", "a b/$(id)", "")
    assert done.stdout == "[local0:0]:<--load><a b/$(id)><>\n"


def test_the_setup_is_there_for_the_command(run: Run) -> None:
    assert run("echo $GREETING from $PWD", setup="export GREETING=hello\ncd /").stdout == "[local0:0]:hello from /\n"


# As one script would: each word is what the command makes of what setup has left.
LEFT_BY_SETUP: dict[str, tuple[str, str, str]] = {
    "a variable without export": ("head=n7", "echo $head", "n7"),
    "one that holds what a shell would run": (r"""odd='$(id) `id` "x" \ ;id'""", """printf '%s\\n' "$odd" """,
                                              r"""$(id) `id` "x" \ ;id"""),
    "one that is declared and not set": ("declare unset; head=n7", "echo $head", "n7"),
    "an array": ("flags=(--lr 'a b' '')", """printf '<%s>' "${flags[@]}"; echo""", "<--lr><a b><>"),
    "a map": ("declare -A of=([gpu]=8)", "echo ${of[gpu]}", "8"),
    "a function": ("greet() { echo hello $1; }", "greet you", "hello you"),
    "an option": ("set -o pipefail", "false | true; echo $?", "1"),
    "set -e": ("set -eu", "case $- in *e*u*) echo both;; esac", "both"),
    "set -e with no word to resume with": ("set -euo pipefail", """echo "<${RESUME_ARGS[*]}>" """, "<>"),
    "a name of the script's own": ("SL_COMMAND=x SL_TRAIN=y", "echo $SL_COMMAND$SL_TRAIN", "xy"),
    "words of its own": ("set -- one two; shift", 'echo "<$*>"', "<>"),
    "RESUME_ARGS": ("RESUME_ARGS=(mine)", 'echo "<${RESUME_ARGS[*]}>"', "<>"),
}


def with_torchrun(tmp_path: Path) -> dict[str, Any]:
    """For `run`: an attempt whose launcher is a torchrun that runs the last words of its command line."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "torchrun").write_text('#!/bin/bash\nwhile [[ $1 != bash ]]; do shift; done; exec "$@"\n')
    (tmp_path / "bin" / "torchrun").chmod(0o755)
    return {"environ": {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"},
            "launch": plan_of(LOCAL).launch._replace(by="torchrun", nproc_per_node=1)}


@pytest.mark.parametrize("by", ["none", "torchrun"])
@pytest.mark.parametrize("setup, command, said", LEFT_BY_SETUP.values(), ids=LEFT_BY_SETUP.keys())
def test_what_setup_leaves_reaches_the_command_as_in_one_script(
    run: Run, tmp_path: Path, setup: str, command: str, said: str, by: str
) -> None:
    launch, prefix = (with_torchrun(tmp_path), "") if by == "torchrun" else ({}, "[local0:0]:")
    assert run(command, setup=setup, **launch).stdout == f"{prefix}{said}\n"


def test_the_shell_of_setup_goes_on_with_the_command_whose_lines_keep_their_numbers(run: Run) -> None:
    setup = "pid=$$\nshopt -s extglob\ntrap 'echo asked' USR1"
    said = run("shopt -q extglob && kill -USR1 $pid\nno_such_command", "--load", setup=setup).stdout
    assert said == "[local0:0]:asked\n[local0:0]:training: line 3: no_such_command: command not found\n"


def test_a_file_that_setup_sources_sees_no_arguments(run: Run, tmp_path: Path) -> None:
    (tmp_path / "setvars.sh").write_text("count=$#\n")
    assert run("echo $count", "--load", "x", setup="source ./setvars.sh").stdout == "[local0:0]:0\n"


@pytest.mark.parametrize("by", ["none", "torchrun"])
def test_what_setup_sets_is_on_no_command_line_not_in_the_trainings_environment_and_not_in_the_log(
    run: Run, tmp_path: Path, by: str
) -> None:
    """Other users of a node can read command lines."""
    look = "env >env; cat /proc/[0-9]*/cmdline >lines 2>/dev/null; echo known ${#key}"
    launch = with_torchrun(tmp_path) if by == "torchrun" else {}
    said = run(look, setup="key=$(printf secret%s 7); set -x; : traced", **launch).stdout
    assert "known 7\n" in said and "+ : traced\n" in said and "secret7" not in said
    assert "secret7" not in (tmp_path / "env").read_text()
    assert b"secret7" not in (tmp_path / "lines").read_bytes()


def test_more_than_a_process_can_be_given_is_left_out_and_the_training_starts(run: Run, tmp_path: Path) -> None:
    big = "big=$(head -c 130000 /dev/zero | tr '\\0' x)"
    assert run("echo ${#big}", setup=big).stdout == "[local0:0]:130000\n"
    torchrun = with_torchrun(tmp_path)
    said = run("echo trained${big:+ with it}", setup=big, **torchrun).stdout
    assert "trained\n" in said and "too long to be handed to the command" in said
    half = "half=$(head -c 90000 /dev/zero | tr '\\0' x); f() { : $half; }; eval \"f() { : $half; }\""
    assert run("echo ${#half}; type -t f", setup=half, **torchrun).stdout == "90000\n"


@pytest.mark.parametrize("setup", ["", "echo setup"])
def test_a_login_shell_reads_the_profile_as_bash_l_does(run: Run, tmp_path: Path, setup: str) -> None:
    (tmp_path / ".bash_profile").write_text("mymodule() { echo module $1; }; shopt -q login_shell && site=here\n")
    env = {"HOME": str(tmp_path)}
    login = plan_of(LOCAL).launch._replace(login_shell=True)
    said = run("mymodule load; echo $site", setup=setup, launch=login, environ=env).stdout
    assert said.endswith("[local0:0]:module load\n[local0:0]:here\n")
    assert "mymodule: command not found" in run("mymodule load", setup=setup, environ=env).stdout


@pytest.mark.parametrize("by", ["none", "srun"])
def test_each_line_of_a_python_training_is_there_when_it_is_killed(run: Run, by: str) -> None:
    launch = plan_of(LOCAL).launch._replace(by=by)
    said = run("python3 -c 'import os; print(\"step 1\"); os.kill(os.getpid(), 9)'", launch=launch).stdout
    assert "[local0:0]:step 1\n" in said


def test_who_wants_pythons_own_buffers_has_them(run: Run) -> None:
    assert run("echo \"<$PYTHONUNBUFFERED>\"", env=(("PYTHONUNBUFFERED", ""),)).stdout == "[local0:0]:<>\n"


@pytest.mark.parametrize("setup", ["false", "echo loading\n(exit 3)", "exit 3", "set -e\nfalse\ntrue"])
def test_a_setup_that_fails_says_so_and_starts_no_training(run: Run, setup: str) -> None:
    done = run("echo trained", setup=setup)
    code = 3 if "3" in setup else 1
    assert done.returncode == code
    assert f"[local0:0]:safelaunch: setup failed with exit code {code} on " in done.stdout
    assert "trained" not in done.stdout


# Names that the script uses or used itself, and some that the shells on the way react to.
NAMES = ("NODES", "PYTHON", "COMMAND", "SETUP", "RUN_DIR", "LAUNCHER", "TEE", "SRUN", "LIBRARY", "ENV", "args", "code",
         "host", "rank", "train", "launch", "python", "node", "leader", "running", "WANDB_RUN_ID", "TMPDIR", "CDPATH",
         "HOSTNAME", "LC_ALL")




@pytest.mark.parametrize("where", ["train.yaml", "submitter's shell"])
def test_a_variable_reaches_the_training_whatever_its_name(run: Run, where: str) -> None:
    wanted = {name: f"my {name}" for name in NAMES}
    done = run("env", env=tuple(wanted.items())) if where == "train.yaml" else run("env", environ=wanted)
    seen = dict(line.removeprefix("[local0:0]:").split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert {name: seen.get(name) for name in NAMES} == wanted


def test_the_trainings_path_is_not_the_scripts(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bash").symlink_to("/bin/bash")
    done = run("echo my $PATH", env=(("PATH", str(tmp_path / "bin")),))
    assert f"my {tmp_path}/bin\n" in done.stdout


# What stands in for /usr/bin/python3, for one attempt alone (a mount namespace).
PYTHONS_THAT_CANNOT = {
    "too old": "exit 1", "its library is missing": "echo 'cannot open shared object file' >&2; exit 127",
    "for another CPU": "kill -ILL $$", "broken": "kill -SEGV $$",
}


def with_python(tmp_path: Path, text: str) -> dict[str, Any]:
    """For `run`: an attempt on a node whose /usr/bin/python3 is this bash text."""
    if os.geteuid() != 0:
        pytest.skip("mounting takes root")
    stand_in = tmp_path / "python3"
    stand_in.write_text(f"#!/bin/bash\n{text}\n")
    stand_in.chmod(0o755)
    hide = f'mount --bind {stand_in} "$(realpath /usr/bin/python3)" && exec "$@"'
    return {"environ": {**WHOLE, "SL_TEST": "1"}, "srun": ("bash", "-c", STAND_IN, "srun"),
            "first": ("unshare", "--mount", "bash", "-c", hide, "hide")}


@pytest.mark.root
@pytest.mark.parametrize("text", PYTHONS_THAT_CANNOT.values(), ids=PYTHONS_THAT_CANNOT.keys())
def test_a_node_whose_python_cannot_run_a_guard_trains_without_one(run: Run, tmp_path: Path, text: str) -> None:
    done = run("echo trained; exit 6", **with_python(tmp_path, text))
    assert (done.returncode, done.stdout.count("[n0:0]:trained\n")) == (6, 1), done.stdout
    assert "node guard" not in done.stdout and "shared object" not in done.stdout


@pytest.mark.root
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT], ids=lambda number: number.name)
def test_a_task_that_is_ended_before_its_guard_has_started_starts_no_training(
    run: Run, tmp_path: Path, number: signal.Signals
) -> None:
    done = run("echo trained", **with_python(tmp_path, f"trap - INT; kill -{number.value} $$"))
    assert (done.returncode, "trained" in done.stdout) == (128 + number, False), done.stdout


def test_a_training_that_fails_runs_once_where_no_shell_hears_of_its_guard(run: Run) -> None:
    """SIGURG is ignored by who starts the step: the shell cannot be told that the guard runs."""
    done = run("echo trained under $(cut -c 1-40 </proc/$PPID/cmdline | tr '\\0' ' '); exit 1", environ=WHOLE,
               first=("bash", "-c", "trap '' URG; exec \"$@\"", "first"))
    assert (done.returncode, done.stdout.count("trained under /usr/bin/python3")) == (1, 1), done.stdout


# One task of srun, for a machine without Python: drops srun's own options and runs the rest.
STAND_IN = """while [[ $1 == --* ]]; do shift; done
SAFELAUNCH_NODE=n0 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NNODES=1 SLURM_NTASKS=1 exec "$@" """


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace holds the shell where the signal must come")
def test_a_shell_that_a_signal_makes_forget_its_trainings_end_does_not_wait_for_ever(run: Run) -> None:
    held = "strace -o /dev/null -e trace=wait4 -e inject=wait4:delay_exit=600000:when=1"
    done = run("(sleep 0.3; kill -URG $PPID) >/dev/null 2>&1 & echo trained; exit 7",
               srun=("bash", "-c", STAND_IN.replace("exec ", f"exec {held} "), "srun"))
    assert "[n0:0]:trained\n" in done.stdout
    assert done.returncode in (7, 255)   # a bash that forgets nothing knows it


def test_no_old_python_is_asked_to_be_a_guard(run: Run) -> None:
    done = run("tr '\\0' ' ' </proc/$PPID/cmdline | cut -c 1-40", environ=WHOLE)
    assert "/usr/bin/python3 -I -S -c" in done.stdout


@pytest.mark.parametrize("code", [
    "3.9.0 of somebody else\n" + CODE.partition("\n")[2],
    "00000000" + CODE[8:],
    CODE[:-40] + "A" * 40,
    CODE.partition("\n")[0] + "\n",
    CODE.partition("\n")[0] + "\n=not base64=",
], ids=["another Python's", "another bytecode's", "damaged", "empty", "no code"])
def test_where_the_compiled_guard_cannot_be_read_its_text_is(run: Run, code: str) -> None:
    own_text = {**WHOLE, "SAFELAUNCH_GUARD": "raise SystemExit(3)", "SAFELAUNCH_GUARD_CODE": code}
    done = run("echo trained", environ=own_text)
    assert "no node guard here: SystemExit(3)" in done.stdout and "[local0:0]:trained\n" in done.stdout


def test_guards_code_is_there_for_the_second_attempt_and_never_waited_for() -> None:
    code = guardcode.GuardCode()
    assert code.env() == {}
    wait_until(lambda: bool(code.env()), 60, "the guard was not compiled")
    assert code.env() == {"SAFELAUNCH_GUARD_CODE": CODE}
    broken = guardcode.GuardCode(lambda: "def main(:")
    assert broken.env() == {}
    ended = None if broken._compiler is None else broken._compiler.wait(60)
    assert ended is not None and ended.code != 0
    assert broken.env() == {}


def test_torchrun_path_gives_the_trainings_exit_code(run: Run, tmp_path: Path) -> None:
    torchrun = with_torchrun(tmp_path)
    for env in (PLAIN, WHOLE, COMPILED):
        done = run("echo trained; exit 9", **{**torchrun, "environ": {**env, **torchrun["environ"]}})
        assert (done.returncode, done.stdout) == (9, "trained\n"), done.stdout


def test_direct_ranks_start_without_torchrun_beside_a_guard_and_by_torchrun_else(run: Run, tmp_path: Path) -> None:
    torchrun = with_torchrun(tmp_path)
    launch = torchrun["launch"]._replace(torchrun="direct", nproc_per_node=2)
    (tmp_path / "bin" / "torchrun").write_text("#!/bin/bash\nexit 77\n")
    command = ('echo "$RANK $WORLD_SIZE $TORCHELASTIC_RUN_ID [$var] $# ${SAFELAUNCH_RANKS-none} '
               '${SAFELAUNCH_TOKEN-none}"')
    words = {"launch": launch, "setup": "var='a b'", "environ": {**WHOLE, **torchrun["environ"]}}
    end = "if ((RANK)); then until [[ -e said ]]; do sleep 0.02; done; exit 5; fi; >said"
    done = run(f"{command}; {end}", **words)
    assert done.returncode == 5, done.stdout
    for rank in (0, 1):
        assert f"[local0:{rank}]:{rank} 2 none [a b] 0 none none\n" in done.stdout, done.stdout
    assert "[local0:node]:  rank      : 1 (local_rank: 1)\n" in done.stdout
    assert run(command, **{**words, "environ": torchrun["environ"]}).returncode == 77
    (tmp_path / "bin" / "python3").write_text("#!/bin/bash\nexit 1\n")
    (tmp_path / "bin" / "python3").chmod(0o755)
    assert run(command, **words).returncode == 77


def test_without_the_guards_first_file_the_training_runs_without_a_guard(run: Run, tmp_path: Path) -> None:
    """A node whose /tmp was cleaned has a part of the library."""
    whole, part = Path(guardcode.__file__).parents[2], tmp_path / "lib" / "safelaunch"
    part.unlink()
    (part / "node").mkdir(parents=True)
    for name in ("command.sh", "guarded.sh"):
        (part / "node" / name).symlink_to(whole / "node" / name)
    torchrun = with_torchrun(tmp_path)
    done = run("echo trained; exit 9", **{**torchrun, "environ": {**WHOLE, **torchrun["environ"]}})
    assert done.returncode == 9 and "trained\n" in done.stdout, done.stdout


def test_the_training_has_the_submitters_umask_and_not_the_supervisors(run: Run) -> None:
    assert run("umask", environ={"SAFELAUNCH_UMASK": "0002"}).stdout == "[local0:0]:0002\n"


@pytest.mark.parametrize("tool", ["stdbuf", "tr", "sed"])
def test_without_a_tool_for_the_prefix_the_lines_come_without_it(run: Run, tmp_path: Path, tool: str) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in {"bash", "hostname", "sleep", "stdbuf", "tr", "sed"} - {tool}:
        (folder / name).symlink_to(f"/usr/bin/{name}")
    assert run("echo trained; exit 2", env=(("PATH", str(folder)),)).stdout == "trained\n"


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a filesystem")
def test_an_old_bash_on_a_node_with_a_full_tmp_runs_the_training(run: Run, tmp_path: Path) -> None:
    """Before 5.1 bash keeps a here-document in a file, as BASH_COMPAT=5.0 makes a newer one do."""
    (tmp_path / "tiny").mkdir()
    fill = 'mount -t tmpfs -o size=4k tmpfs "$TMPDIR"; head -c 4096 /dev/zero >"$TMPDIR/full"; cat <<<x; exec "$@"'
    done = run("echo trained; exit 3", first=("unshare", "--mount", "bash", "-c", fill, "bash"),
               environ={"BASH_COMPAT": "5.0", "TMPDIR": str(tmp_path / "tiny")})
    assert "No space left" in done.stdout, "the test fills the wrong place"
    assert (done.returncode, "[local0:0]:trained\n" in done.stdout) == (3, True), done.stdout


def test_core_files_have_the_limit_that_is_asked_for_and_a_node_that_refuses_it_says_so(run: Run) -> None:
    limit = {"env": (("SL_CORE_KB", "4000"),)}
    assert "[local0:0]:4000\n" in run("ulimit -S -c", first=("prlimit", "--core=0:unlimited"), **limit).stdout
    refused = run("ulimit -S -c", first=("prlimit", "--core=0:0"), **limit)
    assert "[local0:0]:0\n" in refused.stdout and refused.returncode == 0
    assert "safelaunch: no core files of 4000 kB on local0: its limit is 0" in refused.stdout
