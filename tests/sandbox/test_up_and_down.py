"""A sandbox comes up beside others, and leaves nothing behind: no process, no folder, no mount, no entry."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from safelaunch.errors import SandboxError
from safelaunch.sandbox import registry
from safelaunch.sandbox.cluster import Sandbox
from tests.sandboxes import JOBS_EACH, reset, skip_unless_able, wait_until

SAFELAUNCH = [sys.executable, "-m", "safelaunch"]


def processes_of(folder: Path) -> list[str]:
    """Command lines and pids of whatever names the folder in its command line or environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words, env = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
        except OSError:
            continue
        if f"{folder}/".encode() in words + env and entry.name != str(os.getpid()):
            found.append(f"{entry.name} {words!r}")
    return found


def assert_gone(folder: Path) -> None:
    assert processes_of(folder) == []
    assert not folder.exists()
    assert f"{folder}/" not in Path("/proc/self/mountinfo").read_text()
    assert registry.lookup(str(folder)) is None


@pytest.fixture
def fresh(slurm_here: None) -> Iterator[Callable[[str], Path]]:
    """Folders for sandboxes that a test starts by itself; whatever is up in them at the end is ended."""
    asked: list[Path] = []

    def make(word: str) -> Path:
        asked.append(registry.ROOT / f"pytest-{os.getpid()}-{word}")
        return asked[-1]

    yield make
    for folder in asked:
        if registry.lookup(str(folder)):
            Sandbox.load(folder).down()


def test_down_leaves_nothing_of_a_silent_node_or_of_a_job_that_clings(own_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = own_sandbox(2)
    started = sandbox.dir / "home" / "sl-alice" / "started"
    clinging = f"trap '' TERM INT; setsid sleep 1000 & touch {started}.$(hostname -s); while :; do sleep 1; done"
    sandbox.start(["srun", "-N2", "bash", "-c", clinging])
    wait_until(lambda: len(list(started.parent.glob("started.*"))) == 2, 60, "the job did not start")
    sandbox.crash("n1", silent=True)
    sandbox.down()
    assert_gone(sandbox.dir)


def test_no_other_user_of_the_machine_reaches_its_munge(own_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = own_sandbox(1)
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
    seen = subprocess.run([*as_nobody, "ls", str(sandbox.dir / "munge" / "socket")], capture_output=True, text=True)
    assert "Permission denied" in seen.stderr
    assert sandbox.run(["srun", "id", "-un"]).stdout == "sl-alice\n"


def test_down_can_be_said_twice(own_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = own_sandbox(1)
    sandbox.down()
    sandbox.down()
    assert_gone(sandbox.dir)


def test_down_detaches_a_filesystem_that_was_mounted_inside(own_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = own_sandbox(1)
    inside = sandbox.dir / "work" / "mnt"
    inside.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", inside], check=True, timeout=60)
    sandbox.down()
    assert_gone(sandbox.dir)


def test_two_sandboxes_live_side_by_side(own_sandbox: Callable[..., Sandbox]) -> None:
    one, two = own_sandbox(2), own_sandbox(2)
    jobs = [box.run(["srun", "-N2", "-n2", "printenv", "SLURM_JOB_ID"]).stdout.split() for box in (one, two)]
    assert len({*jobs[0], *jobs[1]}) == 2
    one.down()
    assert two.run(["srun", "-N2", "true"]).returncode == 0


def test_sandboxes_that_start_at_the_same_moment_share_neither_ports_nor_job_ids(
    own_sandbox: Callable[..., Sandbox],
) -> None:
    with ThreadPoolExecutor(4) as pool:
        boxes = list(pool.map(own_sandbox, [2, 2, 2, 2]))
    entries = [registry.find(box.name) for box in boxes]
    assert len({entry.port + i for entry in entries for i in range(3)}) == 12
    firsts = sorted(int(re.findall(r"FirstJobId=(\d+)", box.conf.read_text())[0]) for box in boxes)
    assert all(after - before >= JOBS_EACH for before, after in itertools.pairwise(firsts)), firsts


def test_slurms_defaults_are_kept(sandbox: Sandbox) -> None:
    shown = sandbox.slurm(["scontrol", "show", "config"])
    values = {key.strip(): value.strip() for key, _, value in (row.partition("=") for row in shown.splitlines())}
    assert values["SlurmdTimeout"] == "300 sec"
    assert values["KillWait"] == "30 sec"


@pytest.mark.parametrize("more", [False, True], ids=["plain", "with-accounting-and-cables"])
def test_a_conf_that_slurm_refuses_is_shown_and_leaves_nothing(fresh: Callable[[str], Path], more: bool) -> None:
    skip_unless_able(with_accounting=more, with_netns=more)
    folder = fresh("bad")
    with pytest.raises(SandboxError, match="select/nonsense"):
        Sandbox.up(folder, 1, conf={"SelectType": "select/nonsense"}, accounting=more, netns=more)
    assert_gone(folder)


def test_a_folder_with_something_in_it_is_refused_and_not_touched(fresh: Callable[[str], Path]) -> None:
    folder = fresh("full")
    folder.mkdir(parents=True)
    (folder / "thesis.tex").write_text("all of it")
    try:
        with pytest.raises(SandboxError, match="not empty"):
            Sandbox.up(folder, 1)
        assert (folder / "thesis.tex").read_text() == "all of it"
    finally:
        (folder / "thesis.tex").unlink()
        folder.rmdir()


def test_a_name_that_is_up_is_refused(own_sandbox: Callable[..., Sandbox], fresh: Callable[[str], Path]) -> None:
    sandbox = own_sandbox(1)
    with pytest.raises(SandboxError, match="already up"):
        Sandbox.up(fresh("other"), 1, name=sandbox.name)


@pytest.mark.parametrize(
    ("moment", "options"),
    [
        ("ns/ctl", []), ("ns/n0", []), ("munge/socket", []), ("run/slurmctld.pid", []), ("run/slurmd-n0.pid", []),
        ("net/n1", ["--netns"]), ("db/data/mysql", ["--accounting"]), ("db/socket", ["--accounting"]),
    ],
    ids=["server", "node", "munge", "slurmctld", "slurmd", "network", "bootstrap", "database"],
)  # fmt: skip
def test_an_up_that_was_killed_can_be_downed(
    fresh: Callable[[str], Path], moment: str, options: list[str]
) -> None:
    skip_unless_able(with_accounting="--accounting" in options, with_netns="--netns" in options)
    folder = fresh("killed")
    process = subprocess.Popen(
        [*SAFELAUNCH, "sandbox", "up", "--nodes", "2", "--name", folder.name, *options], stdout=-3, stderr=-3
    )
    wait_until(lambda: (folder / moment).exists() or process.poll() is not None, 120, f"{moment} did not appear", 0.001)
    process.send_signal(signal.SIGKILL)
    process.wait(180)
    said = subprocess.run([*SAFELAUNCH, "sandbox", "down", folder.name], capture_output=True, text=True, timeout=180)
    assert said.returncode == 0, said.stderr
    assert_gone(folder)


def test_the_verb_starts_shows_crashes_heals_and_ends_a_sandbox(fresh: Callable[[str], Path]) -> None:
    name = fresh("cli").name

    def say(*argv: str) -> str:
        done = subprocess.run([*SAFELAUNCH, "sandbox", *argv], capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr
        return done.stdout

    words = ["up", "--nodes", "2", "--gpus", "4", "--name", name, "--conf", "KillWait=7"]
    begun = subprocess.run([*SAFELAUNCH, "sandbox", *words], capture_output=True, text=True, timeout=180)
    assert begun.returncode == 0, begun.stderr
    line = begun.stdout
    assert line == f"export SLURM_CONF={registry.ROOT}/{name}/slurm.conf\n" == say("env", name)
    assert name in say("list")
    listed = {row["name"]: row for row in json.loads(say("list", "--json"))["sandboxes"]}
    assert (listed[name]["nodes"], listed[name]["gpus"]) == (2, 4)
    shell = f"{line} srun -N2 hostname -s; scontrol show config | grep KillWait"
    shown = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=180).stdout
    assert "n0" in shown and "n1" in shown and "7 sec" in shown
    (user,) = re.findall(r"(?m)^Jobs as: (.*?)   \(or", begun.stderr)   # as it is typed, with sudo or without
    shown = subprocess.run(["bash", "-c", f"cd /; {line} {user} -s; {user.replace('hostname', 'whoami')}"],
                           capture_output=True, text=True, timeout=180).stdout
    assert sorted(shown.split()) == ["n0", "n1", "sl-alice", "sl-alice"]
    say("crash", "--silent", "n1", "--name", name)
    say("heal", "n1", "--name", name)
    say("crash", "n1", "--name", name)
    say("heal", "n1", "--name", name)
    say("down", name)
    assert_gone(registry.ROOT / name)
    say("down", name)


def test_the_verb_starts_a_sandbox_with_everything_and_cuts_a_node(fresh: Callable[[str], Path]) -> None:
    skip_unless_able(with_accounting=True, with_netns=True)
    name = fresh("all").name

    def say(*argv: str) -> str:
        done = subprocess.run([*SAFELAUNCH, "sandbox", *argv], capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr
        return done.stderr

    told = say("up", "--nodes", "2", "--accounting", "--netns", "--preemption", "--name", name)
    login = next(line for line in told.splitlines() if line.startswith("Log in:")).partition(":")[2]
    enter = shlex.split(login.strip().removeprefix("sudo "))   # sudo would drop SLURM_CONF
    shown = subprocess.run(
        [*enter, "-c", "srun -phigh -N2 hostname -s"], capture_output=True, text=True, timeout=180,
        env={**os.environ, "SLURM_CONF": str(registry.ROOT / name / "slurm.conf")}, cwd="/",
    )  # fmt: skip
    assert sorted(shown.stdout.split()) == ["n0", "n1"], shown.stderr
    assert "cut off" in say("crash", "--cut", "n1", "--name", name)
    say("heal", "n1", "--name", name)
    say("down", name)
    assert_gone(registry.ROOT / name)


WITH_V2_ALONE = """\
mount --make-rprivate / && mount -t tmpfs none /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup || exit 77
if [ -d /run/dbus ]; then mount -t tmpfs none /run/dbus; fi
python=$1 folder=$2 name=${2##*/}
"$python" -m safelaunch sandbox up --nodes=2 --dir="$folder" --name="$name" || exit 1
SLURM_CONF=$folder/slurm.conf timeout 60 srun --nodes=2 hostname -s
code=$?
"$python" -m safelaunch sandbox down "$name" >&2   # from here alone its namespaces are seen
exit $code
"""


def test_a_sandbox_runs_jobs_where_cgroup_v2_is_alone_and_no_systemd_answers_as_in_a_container(
    fresh: Callable[[str], Path]
) -> None:
    folder = fresh("v2")
    done = subprocess.run(["unshare", "--mount", "bash", "-c", WITH_V2_ALONE, "bash", sys.executable, str(folder)],
                          capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip(f"the kernel mounts no cgroup2 here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()[-2:]) == ["n0", "n1"], done.stdout
    assert_gone(folder)


def test_two_kinds_of_crash_at_once_are_refused(sandbox: Sandbox) -> None:
    argv = [*SAFELAUNCH, "sandbox", "crash", "--silent", "--cut", "n1", "--name", sandbox.name]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=180)
    assert (done.returncode, "choose one" in done.stderr) == (2, True)


def test_without_root_the_verb_says_so_and_names_sudo(slurm_here: None) -> None:
    program = (
        "import os, sys; from safelaunch import cli; import safelaunch.verbs.site.sandbox;"
        "os.seteuid(65534); sys.exit(cli.run(['sandbox', 'up', '--name', 'never']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=180)
    assert (done.returncode, "sudo safelaunch sandbox" in done.stderr) == (2, True), done.stderr


def test_reset_ends_jobs_that_ignore_term_and_strays_and_silence(own_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = own_sandbox(2)
    home = sandbox.dir / "home" / "sl-alice"
    script = f"#!/bin/bash\ntrap '' TERM\nsetsid sleep 1000 &\ntouch {home}/started\nwhile :; do sleep 1; done\n"
    (home / "job.sh").write_text(script)
    assert sandbox.run(["sbatch", "-w", "n1", "job.sh"]).returncode == 0
    assert sandbox.run(["sbatch", "-N2", "--begin=now+1hour", "job.sh"]).returncode == 0
    wait_until((home / "started").exists, 60, "the job did not start")
    sandbox.start(["sleep", "1000"])
    sandbox.crash("n1", silent=True)
    sandbox.crash("ctl")
    reset(sandbox)
    assert sandbox.slurm(["squeue", "-h"]) == ""
    assert processes_named("sleep", sandbox) == []


def processes_named(name: str, sandbox: Sandbox) -> list[str]:
    return [line for line in processes_of(sandbox.dir) if name in line]
