"""safelaunch attach: whom it refuses, and what it says where Slurm and logs answer rarely so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from safelaunch.cli import run
from safelaunch.verbs.jobs import attaching
from tests.handmade import fake_command, make_running

SHOWN = ("JobId=7 JobName=plain UserId=x JobState={state} Reason=None ExitCode={code} NodeList=n0 StdErr={out} "
         "StdOut={out} WorkDir=/")
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
COUNTED = """
case "$*" in *job*) ;; *) exit 1 ;; esac   # its configuration is asked for, too
n=$(cat {0}/count 2>/dev/null || echo 0); echo $((n + 1)) >{0}/count
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands of Slurm that know job 7 of mine, by files; its output."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(attaching, "LOOK_S", 0.01)
    monkeypatch.setattr(attaching, "ASK_S", 0.05)
    monkeypatch.setattr(attaching, "SOON_S", 0.01)
    fake_command(tmp_path / "bin", "squeue", f"echo \"7|RUNNING|$(id -un)|plain|None|n0\"; : {tmp_path}")
    fake_command(tmp_path / "bin", "scontrol", f"cat {tmp_path}/shown")
    fake_command(tmp_path / "bin", "sacct", "exit 1")
    shown(tmp_path, "RUNNING")
    (tmp_path / "out").write_bytes(b"step 1 loss 3\nstep 2 loss 2\x1b[2J\n")
    return tmp_path


def shown(folder: Path, state: str, code: str = "0:0") -> None:
    draft = folder / "draft"
    draft.write_text(SHOWN.format(state=state, code=code, out=folder / "out") + "\n")
    draft.replace(folder / "shown")


def notes(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str]]:
    return [(one["kind"], one["text"]) for one in map(json.loads, capsys.readouterr().out.splitlines())]


@pytest.mark.parametrize(("state", "exit", "code"), [
    ("COMPLETED", "0:0", 0), ("FAILED", "1:0", 10), ("CANCELLED", "0:15", 12), ("NODE_FAIL", "0:0", 10)])
def test_the_end_of_a_job_is_told_with_its_cause_and_gives_the_exit_code(
    slurm: Path, capsys: pytest.CaptureFixture[str], state: str, exit: str, code: int) -> None:
    with (slurm / "out").open("a") as out:
        out.write(OOM if state == "FAILED" else "")
    shown(slurm, state, exit)
    assert run(["attach", "7", "--json"]) == code
    told = notes(capsys)
    assert [kind for kind, _ in told] == ["pulse", "end"]
    assert told[0][1].startswith("job 7 (plain) is RUNNING on n0, step 2; without a further step")
    assert f"is {state}" in told[1][1] and ("cuda_oom" in told[1][1]) == (state == "FAILED")


def test_a_slurm_that_does_not_answer_ends_nothing_and_one_that_has_forgotten_the_job_does(
    slurm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake_command(slurm / "bin", "scontrol", f"""{COUNTED.format(slurm)}
case $n in
  0) cat {slurm}/shown ;;
  1) echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 1 ;;
  *) echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1 ;;
esac""")
    assert run(["attach", "7", "--json"]) == 4
    told = notes(capsys)
    assert [kind for kind, _ in told] == ["pulse", "trouble", "end"], told
    assert "Unable to contact" in told[1][1] and "Slurm does not know it any more" in told[2][1]


def test_who_may_not_be_attached_is_refused_with_a_reason(
    slurm: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["attach", "bloom"]) == 2 and "is no job id" in capsys.readouterr().err
    fake_command(slurm / "bin", "squeue", "echo '7|RUNNING|somebody|plain|None|n0'")
    assert run(["attach", "7"]) == 2 and "belongs to somebody" in capsys.readouterr().err
    fake_command(slurm / "bin", "squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert run(["attach", "7"]) == 2 and "Slurm knows no job 7" in capsys.readouterr().err
    assert run(["attach", "7", "no.such=1"]) == 2 and "no: unknown key" in capsys.readouterr().err


def test_a_job_of_a_run_has_its_supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    made = make_running(tmp_path, monkeypatch)
    from safelaunch.run.io import registry

    registry.register(made.dir, "bloom", "1a2b3c4d", "12")
    assert run(["attach", "12"]) == 2 and "is one of the run bloom" in capsys.readouterr().err


def test_a_log_that_cannot_be_read_is_told_once(slurm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (slurm / "out").unlink()
    (slurm / "out").mkdir()
    fake_command(slurm / "bin", "scontrol", f"""{COUNTED.format(slurm)}
[ $n -lt 3 ] || sed -i s/RUNNING/COMPLETED/ {slurm}/shown
cat {slurm}/shown""")
    assert run(["attach", "7", "--json"]) == 0
    assert [kind for kind, _ in notes(capsys)] == ["trouble", "pulse", "end"]
