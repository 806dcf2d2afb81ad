"""`safelaunch status` without a run: one's own runs, the team's, and those that ended."""

from __future__ import annotations

import json
import os
import pwd
import time
from pathlib import Path
from typing import Any

import pytest

from safelaunch.cli import run
from safelaunch.errors import RunFolderError
from safelaunch.run.io import registry, runfolder
from safelaunch.verbs.common import runs
from safelaunch.verbs.overview import runlist
from tests.frozen import MAX_FROZEN_S, FuseMount
from tests.handmade import YAML, Made, fake_command, make_run

DOCS = Path(__file__).parents[2] / "docs" / "verbs.md"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    fake_command(tmp_path / "bin", "squeue", "exit 0")


@pytest.fixture
def three(tmp_path: Path) -> dict[str, Made]:
    """alpha runs, beta has given up in the night, gamma completed two days ago."""
    found = {}
    for number, name in enumerate(("alpha", "beta", "gamma")):
        made = make_run(tmp_path / name, YAML.replace("bloom", name), f"{number}a2b3c4d")
        made.submitted(str(11 + number))
        made.event("job_started", ago_s=300_000, job=str(11 + number), nodes=["n0"], batch_host="n0")
        made.attempt(job=str(11 + number))
        registry.register(made.dir, name, f"{number}a2b3c4d", str(11 + number))
        found[name] = made
    found["alpha"].log(1, b"step 92/400 loss 0.5, 250 ms/step\n")
    found["beta"].event("attempt_ended", ago_s=20_001, attempt=1, how="failed", exit_code=1)   # it brought no restart
    found["beta"].event("gave_up", ago_s=20_000, exit_code=10, why="the same failure twice")
    found["gamma"].event("completed", ago_s=200_000, exit_code=0, why="done")
    squeue(tmp_path, "11|RUNNING|me|alpha.0a2b3c4d|None|n0")
    return found


def squeue(tmp_path: Path, *lines: str) -> None:
    """Squeue with two hours left of each job; a search for folders finds none."""
    fake_command(tmp_path / "bin", "squeue", "case \"$*\" in *%o*) exit 0 ;; esac\n" + "\n".join(
        f"echo '2:00:00|N/A|{line}'" for line in lines))


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run(["status", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def names(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    return [one["name"] for one in shown(capsys, *words)["runs"]]


def test_runs_that_go_on_and_those_that_ended_within_a_day_are_shown(
    three: dict[str, Made], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["status"]) == 0
    head, beta, alpha = capsys.readouterr().out.splitlines()   # no RETRY
    assert head.split() == ["RUN", "STATE", "FOR", "STEP", "DONE", "IN", "JOB", "ENDS", "IN"]
    assert beta.split()[:5] == ["beta", "gave", "up", "5h", "33m"] and "the same failure twice" in beta
    assert alpha.split()[:2] == ["alpha", "running"] and "92/400" in alpha and "1m" in alpha


def test_all_of_them_are_shown_when_asked_for(three: dict[str, Made], capsys: pytest.CaptureFixture[str]) -> None:
    assert names(capsys, "--all") == ["gamma", "beta", "alpha"]


def test_the_object_has_the_keys_that_the_documentation_names(
    three: dict[str, Made], capsys: pytest.CaptureFixture[str]
) -> None:
    seen = shown(capsys)
    documented = DOCS.read_text().split("### The table")[1].split("\n##")[0]
    assert seen["v"] == 1
    assert [key for key in {**seen, **seen["runs"][0]} if f"`{key}`" not in documented] == []
    json.dumps(seen, allow_nan=False)


def test_a_run_that_has_ended_is_looked_at_no_more(three: dict[str, Made], capsys: pytest.CaptureFixture[str]) -> None:
    assert names(capsys) == ["beta", "alpha"]
    ended = {entry.name: (entry.brief or {}).get("state") for entry in registry.listed()}
    assert ended == {"alpha": None, "beta": "gave_up", "gamma": "completed"}
    for name in ("beta", "gamma"):
        (three[name].dir / "run.json").write_bytes(b"would be an error")
    assert names(capsys) == ["beta", "alpha"]
    assert names(capsys, "--all") == ["gamma", "beta", "alpha"]


def test_a_folder_that_has_gone_or_is_odd_hides_no_other(
    three: dict[str, Made], capsys: pytest.CaptureFixture[str]
) -> None:
    (three["beta"].dir / "run.json").write_bytes(b"{}")
    (three["gamma"].dir / "run.json").unlink()
    assert names(capsys, "--all") == ["alpha"]


def test_without_an_answer_of_slurm_the_journals_word_stands(
    three: dict[str, Made], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_command(tmp_path / "bin", "squeue", "echo 'slurm_load_jobs error: Unable to contact' >&2; exit 1")
    assert run(["status"]) == 0
    told = capsys.readouterr()
    assert "alpha" in told.out and "no clear answer from Slurm: slurm_load_jobs error" in told.err


def test_where_all_runs_have_ended_slurm_is_not_missed(
    three: dict[str, Made], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (three["alpha"].dir / "run.json").unlink()
    fake_command(tmp_path / "bin", "squeue", "echo 'squeue: fatal: no configuration source' >&2; exit 1")
    assert run(["status", "--all"]) == 0
    told = capsys.readouterr()
    assert "beta" in told.out and told.err == ""


def test_the_only_run_is_shown_itself_where_it_is_the_newest_in_this_folder(
    three: dict[str, Made], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    registry.file().unlink()
    registry.register(three["alpha"].dir, "alpha", "0a2b3c4d", "11")
    assert run(["status"]) == 0
    assert capsys.readouterr().out.startswith("RUN")
    monkeypatch.chdir(three["alpha"].dir)
    assert run(["status"]) == 0
    assert capsys.readouterr().out.startswith("run        alpha")


def test_no_run_at_all_is_the_error_that_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status"]) == 2
    assert "there is no run in this folder" in capsys.readouterr().err


def test_a_table_of_one_run_that_is_named_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "alpha", "--all"]) == 2
    assert "leave RUN out" in capsys.readouterr().err


def test_the_team_has_runs_of_others_that_slurm_knows_and_says_how_many_are_closed(
    three: dict[str, Made], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = make_run(tmp_path / "far" / "delta", YAML.replace("bloom", "delta"), "5a2b3c4d")
    theirs.running()
    me = pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.setattr("safelaunch.verbs.common.teamruns._me", lambda: "somebody")
    asked, lines = tmp_path / "asked", (
        (f"2:00:00|N/A|12|RUNNING|{me}|delta.5a2b3c4d|None|n0", f"{theirs.dir}/job.sbatch"),
        ("2:00:00|N/A|11|RUNNING|me|alpha.0a2b3c4d|None|n0", "/x/job.sbatch"),
        ("2:00:00|N/A|13|RUNNING|eve|odd|name|None|n0", "(null)"))
    fake_command(tmp_path / "bin", "squeue", "\n".join([
        f"echo asked >>{asked}", "case \"$*\" in *%o*)", *(f"echo '{line}|{script}'" for line, script in lines),
        ";; *)", *(f"echo '{line}'" for line, _ in lines), ";; esac"]))
    seen = shown(capsys, "--team")
    assert len(asked.read_text().splitlines()) == 1
    assert [(one["name"], one["state"], one["owner"]) for one in seen["runs"]][-1] == ("delta", "running", me)
    assert "delta" not in names(capsys), "it is nobody's own"
    assert run(["status", "--team"]) == 0
    assert "OWNER" in capsys.readouterr().out

    def refuse(path: Path) -> runfolder.Run:
        raise RunFolderError("you may not read it")

    with monkeypatch.context() as patch:
        patch.setattr(runfolder, "load", refuse)
        assert shown(capsys, "--team")["closed"] == 1
    fake_command(tmp_path / "bin", "squeue", "exit 0")   # its jobs are over, and Slurm has forgotten them
    assert "delta" in [one["name"] for one in shown(capsys, "--team", "--all")["runs"]]


def test_a_table_asks_once_which_cluster_this_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    monkeypatch.delenv("SLURM_CONF", raising=False)
    fake_command(tmp_path / "bin", "scontrol", f"echo asked >>{asked}; echo 'ClusterName = here'")
    for number in range(3):
        made = make_run(tmp_path / f"run{number}", run_id=f"{number}a2b3c4d")
        meta = json.loads((made.dir / "run.json").read_text())
        (made.dir / "run.json").write_text(json.dumps({**meta, "cluster_name": "other"}))
        made.running()
        registry.register(made.dir, "bloom", f"{number}a2b3c4d", "12", "other")
    assert all(one["state"] == "running" for one in shown(capsys)["runs"])
    assert asked.read_text().splitlines() == ["asked"]


def test_a_run_whose_supervisor_is_silent_says_so(three: dict[str, Made], capsys: pytest.CaptureFixture[str]) -> None:
    pulse = three["alpha"].dir / "pulse.json"
    pulse.write_text(json.dumps({"v": 1, "count": 3, "gen": 1, "job": "12", "t": three["alpha"].now - 300,
                                 "host": "n0", "attempt": 1, "step": 7}))
    os.utime(pulse, (three["alpha"].now - 300,) * 2)
    (alpha,) = [one for one in shown(capsys)["runs"] if one["name"] == "alpha"]
    assert alpha["is_stale"] and "no sign of life from the supervisor for 5 min" in alpha["sentence"]


@pytest.mark.root
def test_a_frozen_home_is_said_and_hangs_nobody(
    fuse_mount: FuseMount, three: dict[str, Made], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(fuse_mount.path))
    monkeypatch.setattr(runs, "FOLDER_DEADLINE_S", 0.5)
    fuse_mount.stop()
    try:
        begun_s = time.monotonic()
        assert run(["status"]) == 2
        assert time.monotonic() - begun_s < MAX_FROZEN_S
    finally:
        fuse_mount.cont()
    assert "your list of runs does not answer" in capsys.readouterr().err


@pytest.mark.root
def test_a_frozen_filesystem_hides_only_its_own_runs(
    fuse_mount: FuseMount, three: dict[str, Made], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = make_run(fuse_mount.path / "zeta", YAML.replace("bloom", "zeta"), "7a2b3c4d")
    frozen.running()
    registry.register(frozen.dir, "zeta", "7a2b3c4d", "17")
    monkeypatch.setattr(runlist, "DEADLINE_S", 5.0)   # the others' two, on a busy machine
    fuse_mount.stop()
    try:
        begun_s = time.monotonic()
        seen = shown(capsys)
        assert time.monotonic() - begun_s < MAX_FROZEN_S
    finally:
        fuse_mount.cont()
    assert [one["name"] for one in seen["runs"]] == ["beta", "alpha"]
    assert seen["silent"] == [str(frozen.dir)]


def test_what_slurm_and_teammates_can_say_beside_the_table_is_a_harmless_line_each() -> None:
    listing = runlist.Listing((), ("/a\x1b]8;;http://x\x07\nb",), 0, "\x1b[2J\nbroken \x9b5m", 0.0)
    assert runlist.notes(listing) == [
        r"no clear answer from Slurm: \x1b[2J; broken \x9b5m",
        r"/a\x1b]8;;http://x\x07; b does not answer: its filesystem is frozen or slow"]
