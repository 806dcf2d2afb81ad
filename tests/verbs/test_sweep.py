"""Submitting a sweep, several points at a time: what is written before each sbatch, and what a cut leaves behind. And
its table, which stays on the screen.

The fake sbatch keeps a list of jobs, which the fake squeue shows; each can be told to fail, or to kill who called it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from safelaunch.cli import run
from safelaunch.errors import RunFolderError
from safelaunch.run.io import journal, runmaking
from safelaunch.script.io import sitefiles, submission
from safelaunch.slurm.io.slurm import Result
from safelaunch.verbs.overview import runlist
from safelaunch.verbs.status import sweepruns as sweeps
from tests.handmade import make_run
from tests.patience import is_so_within

SBATCH = """\
#!/bin/bash
dir=$(dirname "${@: -1}")
[[ -s $dir/run.json && -s $dir/submit.env && -s $dir/claims/1 ]] || { echo "$dir is not whole" >&2; exit 1; }
grep -q '"event":"intent"' "$dir"/journal/* || { echo "$dir: no intent" >&2; exit 1; }
exec 9>>jobs.lock; flock 9
number=$(($(wc -l <jobs) + 1))
[[ $number == "$(cat refuse)" ]] && { echo "Job violates accounting/QOS policy" >&2; exit 1; }
name=$(sed -n 's/^#SBATCH --job-name=//p' "${@: -1}")
echo "$number $name $*" >>jobs
[[ $number == "$(cat kill)" ]] && kill -9 $PPID
echo $number
"""
SQUEUE = """\
#!/bin/bash
for word; do
    [[ $word == --name=* ]] && names=${word#--name=}
    [[ $word == --format=* ]] && format=${word#--format=}
done
while read -r number name _; do
    line=${format/\\%i/$number} line=${line/\\%T/PENDING} line=${line/\\%u/me} line=${line/\\%j/$name}
    line=${line/\\%r/Priority} line=${line/\\%N/}
    [[ -z $names || ,$names, == *,$name,* ]] && sed 's/%[A-Za-z]/N\\/A/g' <<<"$line"
done <"$HOME/jobs"
exit 0
"""
TRAIN = """\
name: many
cluster: slurm
command: cd . && python train.py --lr $lr
slurm: {nodes: 1, time: 5}
launch: {with: srun}
"""
POINTS = 24


@pytest.fixture(autouse=True)
def _a_folder_with_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    (tmp_path / "site.yaml").touch()
    monkeypatch.setenv("SAFELAUNCH_SITE_CONFIG", str(tmp_path / "site.yaml"))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(submission, "SETTLE_S", 0.01)
    monkeypatch.chdir(tmp_path)
    Path("bin").mkdir()
    for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE), ("scontrol", "#!/bin/sh\nexit 0\n")):
        Path("bin", name).write_text(text)
        Path("bin", name).chmod(0o755)
    for name in ("jobs", "kill", "refuse"):
        Path(name).touch()
    Path("train.yaml").write_text(TRAIN)


def words(parallel: int | None, points: int = POINTS) -> list[str]:
    return ["submit", "train.yaml", f"sweep={{lr: 1-{points}}}", *([f"max_parallel={parallel}"] if parallel else [])]


def jobs() -> dict[str, list[str]]:
    """Of each point's run: the words of the sbatch that Slurm has taken."""
    found: dict[str, list[str]] = {}
    for line in Path("jobs").read_text().splitlines():
        number, name, *argv = line.split()
        found.setdefault(name.partition(".")[0], []).append(f"{number} {' '.join(argv)}")
    return found


def all_is_right(parallel: int | None) -> None:
    """Each point has one job, which waits for the one before it in its lane, as its run does."""
    found = jobs()
    assert sorted(found) == sorted(f"many-lr{number}" for number in range(1, POINTS + 1))
    assert all(len(sent) == 1 for sent in found.values()), found
    for number in range(1, POINTS + 1):
        meta = json.loads(Path(f"runs/many-lr{number}/run.json").read_text())
        before = number - parallel if parallel else 0
        waits = re.findall(r"--dependency=(\S+)", found[f"many-lr{number}"][0])
        if before < 1:
            assert waits == ["singleton"] and not meta["config"].get("after")
            continue
        job = found[f"many-lr{before}"][0].split()[0]
        other = json.loads(Path(f"runs/many-lr{before}/run.json").read_text())
        assert waits == [f"afterany:{job},singleton"]
        assert meta["config"]["after"][0]["job_name"] == f"many-lr{before}.{other['run_id']}"
        assert Path(f"runs/many-lr{before}/control/followed").exists()


def others_have_ended() -> bool:
    """Whether no process works here any more: an sbatch outlives the submission that was killed."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.cwd() == str(Path.cwd()):
                return False
    return True


lanes = pytest.mark.parametrize("parallel", [None, 3, 1])


@lanes
def test_every_point_is_whole_and_announced_before_its_sbatch(parallel: int | None) -> None:
    assert run(words(parallel)) == 0
    all_is_right(parallel)


@lanes
def test_a_submission_that_is_killed_in_the_middle_is_finished_by_the_next(parallel: int | None) -> None:
    Path("kill").write_text("3")
    ended = subprocess.run([sys.executable, "-m", "safelaunch", *words(parallel)], capture_output=True, check=False)
    assert ended.returncode == -9
    assert is_so_within(others_have_ended, 60, 0.05)
    assert 3 <= len(jobs()) < POINTS
    Path("kill").write_text("")
    begun = Path("runs", f"many-lr{POINTS}")   # as if it had been killed while it wrote this one
    for name in ("journal", "attempts", "claims", "control"):
        (begun / name).mkdir(parents=True)
    (begun / "job.sbatch").write_text("half of it")
    (begun / ".begun").write_text(f"{os.uname().nodename} 99999999")
    assert run(words(parallel)) == 0
    all_is_right(parallel)


@lanes
def test_what_slurm_refuses_leaves_nothing_behind_and_is_submitted_later(
    parallel: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("refuse").write_text("8")
    assert run(words(parallel)) == 3
    assert "accounting/QOS policy" in capsys.readouterr().err
    sent = {f"many-lr{number}" for number in range(1, POINTS + 1)} & jobs().keys()
    assert {path.name for path in Path("runs").iterdir()} == sent and len(sent) == 7
    Path("refuse").write_text("")
    assert run(words(parallel)) == 0
    all_is_right(parallel)


def test_what_holds_for_all_points_is_said_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "no-absolute-path")
    assert run(words(None)) == 0
    said = capsys.readouterr().err
    assert said.count("no place for the ledger") == 1, said


def test_the_folders_of_all_points_are_marked_by_one_file_that_is_gone_at_the_end() -> None:
    """A file of its own for each would be deleted with it, and every new file is dearer for seconds then."""
    Path("bin", "sbatch").write_text(SBATCH.replace("exec 9>", 'ls -i runs/*/.begun* >>begun\nexec 9>', 1))
    assert run(words(None)) == 0
    seen = Path("begun").read_text().split()
    assert len(set(seen[::2])) == 1, "inodes"
    assert list(Path("runs").rglob(".*")) == []


def test_an_sbatch_that_is_killed_may_have_been_heard_so_its_job_is_looked_for() -> None:
    Path("bin", "sbatch").write_text(SBATCH.replace("echo $number\n", "kill -9 $$\n"))
    assert run(["submit", "train.yaml"]) == 0
    assert jobs().keys() == {"many"} and len(jobs()["many"]) == 1, jobs()


def in_threads(work: Callable[[], object]) -> None:
    """Do it in four threads, which take turns as often as Python lets them."""
    begin = threading.Barrier(4)
    before, threads = sys.getswitchinterval(), [threading.Thread(target=lambda: (begin.wait(), work()))
                                                for _ in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)


def test_points_that_are_written_at_once_get_the_submitters_umask() -> None:
    before, seen = os.umask(0o027), set[int]()
    try:
        in_threads(lambda: seen.update(sitefiles.umask() for _ in range(1000)))
        assert seen == {0o027}
    finally:
        assert os.umask(before) == 0o027


def test_what_slurm_has_said_may_be_forgotten_for_another_point_at_any_moment(tmp_path: Path) -> None:
    class Forgotten(dict[tuple[str, ...], Result]):
        """Another thread clears it right after each answer."""

        def __setitem__(self, argv: tuple[str, ...], told: Result) -> None:
            super().__setitem__(argv, told)
            self.clear()

    sent = submission.Submission(make_run(tmp_path / "run").run, os.environ, "/", print, told=Forgotten())
    assert sent._ask(("true",)).is_ok


def test_a_folder_that_another_submission_makes_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own").mkdir()
    Path("own", "job.sbatch").write_text("another's")
    Path("own", ".begun").write_text(f"{os.uname().nodename} {os.getpid()}")
    assert run(["submit", "train.yaml", "run_dir=own"]) == 2
    assert "is being made by process" in capsys.readouterr().err
    assert Path("own", "job.sbatch").read_text() == "another's" and not Path("jobs").read_text()


def test_of_two_submissions_at_once_neither_replaces_the_others_run(tmp_path: Path) -> None:
    class Slow(dict[str, str]):
        """An environment at whose reading another submission makes the same run."""

        def items(self) -> Any:
            made.append((folder / "run.json").write_text("the other's"))
            return super().items()

    folder, made, one = tmp_path / "runs" / "twice", list[int](), make_run(tmp_path / "run").run
    with pytest.raises(RunFolderError, match="File exists"):
        runmaking.create(folder, one.meta, one.plan, "#!/bin/sh\n", Slow())
    assert made and (folder / "run.json").read_text() == "the other's"
    assert {path.name for path in folder.iterdir()} == {"run.json"}


def test_a_users_own_file_of_that_name_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own").mkdir()
    Path("own", "job.sbatch").write_text("mine")
    assert run(["submit", "train.yaml", "run_dir=own"]) != 0
    assert Path("own", "job.sbatch").read_text() == "mine" and "File exists" in capsys.readouterr().err


def test_the_table_stays_on_the_screen_until_all_have_ended() -> None:
    assert run(words(None, 12)) == 0
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 100, 0, 0))
    watching = subprocess.Popen([sys.executable, "-m", "safelaunch", "status", "many", "--watch"], stdin=terminal,
                                stdout=terminal, stderr=terminal, env={key: value for key, value in (
                                    *os.environ.items(), ("TERM", "xterm")) if key not in ("LINES", "COLUMNS")})
    os.close(terminal)
    try:
        seen = read_until(main, "12 runs: 12 queued")   # its last line
        assert "and 5 more: a larger window shows them" in seen and seen.count("many-lr") == 0
        for number in range(1, 13):
            writer = journal.Writer(journal.Direct(Path(f"runs/many-lr{number}")), 1, "n1", pid=2)
            writer.write(writer.event("gave_up" if number == 12 else "completed", why="a bug"))
        seen = read_until(main)
        assert "12 runs: 11 completed, 1 gave up" in seen
        assert len(re.findall(r"(?m)^\d+ +\d+ +(?:completed|gave up)", seen)) >= 12
        assert watching.wait(60) == 0
    finally:
        watching.kill()
        watching.wait()
        os.close(main)


def read_until(terminal: int, text: str | None = None) -> str:
    """What a terminal shows, up to this text or to the end of who writes there, without its colours and moves."""
    seen, plain = "", ""
    while text is None or text not in plain:
        assert select.select([terminal], [], [], 120)[0], seen
        try:
            seen += os.read(terminal, 65536).decode(errors="replace")
        except OSError:   # EIO: nobody writes there any more
            assert text is None, seen
            break
        plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen)
    return plain


def test_runs_that_do_not_answer_are_not_said_to_have_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words(None, 2)) == 0
    monkeypatch.setattr(runlist, "DEADLINE_S", 0.2)
    monkeypatch.setattr(sweeps, "_look", lambda *_: threading.Event().wait())   # in a child: its filesystem is frozen
    capsys.readouterr()
    assert run(["why", "many"]) == 0
    told = capsys.readouterr()
    assert told.out == "no attempt of the 0 runs that can be read has failed; of the other 2 nothing is known\n"
    assert told.err.count("does not answer: its filesystem is frozen or slow") == 2


@pytest.mark.parametrize("threads", [0, 1, 2])
def test_all_points_are_submitted_where_few_threads_are_to_be_had(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, start = [None] * threads, threading.Thread.start

    def may_fail(thread: threading.Thread) -> None:
        if not left:
            raise RuntimeError("can't start new thread")   # as under a small ulimit -u
        left.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", may_fail)
    assert run(words(1, 3)) == 0
    assert {name: len(sent) for name, sent in jobs().items()} == {"many-lr1": 1, "many-lr2": 1, "many-lr3": 1}


def test_points_whose_folders_are_gone_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words(None, 2)) == 0
    shutil.rmtree("runs/many-lr1")
    capsys.readouterr()
    assert run(["status", "many"]) == 0
    assert "of many-lr1: were they deleted?" in (said := capsys.readouterr()).err and "1 run: 1 " in said.out
    assert run(["why", "many", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gone"] == ["many-lr1"]
    shutil.rmtree("runs")
    assert run(["status", "many", "--watch"]) == 0
    assert re.fullmatch(r"many \(\w+\): 0 runs\n", capsys.readouterr().out)


def test_in_a_pipe_the_watch_ends_with_the_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words(None, 2)) == 0
    for number in (1, 2):
        writer = journal.Writer(journal.Direct(Path(f"runs/many-lr{number}")), 1, "n1", pid=2)
        writer.write(writer.event("completed"))
    capsys.readouterr()
    assert run(["status", "many", "--watch"]) == 0
    assert "2 runs: 2 completed" in capsys.readouterr().out.splitlines()[-1]
