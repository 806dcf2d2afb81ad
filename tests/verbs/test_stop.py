"""safelaunch stop: a person's request; queued jobs go at once, and only what is known is reported."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from safelaunch.base.io.owners import name_of
from safelaunch.cli import run
from safelaunch.run.fold.state import State
from safelaunch.run.io.runfolder import Run
from safelaunch.sandbox.cluster import Sandbox
from safelaunch.verbs.common import confirmation, stopping, talk
from tests.handmade import YAML, Made, fake_command, make_run
from tests.runs import Submit

ME = name_of(os.getuid())
PENDING = f"echo '12|PENDING|{ME}|bloom.1a2b3c4d|Resources|'"


@pytest.fixture
def bloom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(confirmation, "CONFIRM_S", 0.0)   # no leader lives here
    made = make_run(tmp_path / "bloom")
    made.submitted()
    return made


def sees(made: Made, name: str = "kill") -> None:
    """Its leader writes down that it has seen the request."""
    made.event("kill_switch", name=name, who=ME, touched_t=made.now)


def slurm(tmp_path: Path, before: str, after: str = "exit 0") -> Path:
    """squeue that says `before` until scancel was called, then `after`; the file that holds scancel's words."""
    called = tmp_path / "scancel.words"
    fake_command(tmp_path / "bin", "squeue", f"if [[ -e {called} ]]; then {after}; else {before}; fi")
    fake_command(tmp_path / "bin", "scancel", f'echo "$*" >>{called}')
    return called


def control(made: Made) -> list[str]:
    return sorted(path.name for path in (made.dir / "control").iterdir())


def test_the_switch_is_touched_before_a_journal_that_takes_long_is_read(
    bloom: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slurm(tmp_path, PENDING)
    read, seen = Run.state, []

    def slowly(self: Run) -> State:
        seen.append(control(bloom))
        time.sleep(0.3)
        return read(self)

    monkeypatch.setattr(stopping, "QUICK_S", 0.1)
    monkeypatch.setattr(Run, "state", slowly)
    assert run(["stop"]) == 0
    assert seen[0] == ["kill"]


def test_a_run_that_waits_in_the_queue_is_taken_out_and_has_ended(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    called = slurm(tmp_path, PENDING)
    assert run(["stop"]) == 0
    state = bloom.run.state()
    assert called.read_text() == f"--state=PENDING --user={ME} --name=bloom.1a2b3c4d 12\n"
    assert state.ended is not None and (state.ended.how, state.ended.exit_code) == ("stopped", 12)
    assert state.ended.why == f"{ME} stopped it before it started; job 12 taken out of the queue"
    assert control(bloom) == ["kill"] and state.intents == ()
    assert "bloom is stopped: job 12 taken out of the queue" in capsys.readouterr().err


def test_its_lines_are_not_taken_for_the_submitters(bloom: Made, tmp_path: Path) -> None:
    bloom.event("intent", gen=0, host="login", claim=1, act="submit")
    slurm(tmp_path, PENDING)
    assert run(["stop"]) == 0
    numbers = [event.seq for event in bloom.run.journal().events]
    assert len(numbers) == len(set(numbers))
    assert (bloom.dir / "claims" / "1").exists()


def test_a_job_that_slurm_no_longer_knows_is_stopped_on_a_persons_word(bloom: Made, tmp_path: Path) -> None:
    slurm(tmp_path, "exit 0")
    assert run(["stop"]) == 0
    state = bloom.run.state()
    assert state.ended is not None and "Slurm knows no job of it" in state.ended.why


@pytest.mark.parametrize("squeue", [
    "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1", "exit 3",
], ids=["down", "odd"])
def test_without_an_answer_of_slurm_nothing_is_claimed(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str], squeue: str
) -> None:
    called = slurm(tmp_path, squeue)
    assert run(["stop"]) == 4
    assert control(bloom) == ["kill"] and not called.exists()
    assert bloom.run.state().ended is None
    assert "Slurm does not answer" in capsys.readouterr().err


def test_an_answer_that_fails_after_scancel_leaves_the_outcome_unknown(bloom: Made, tmp_path: Path) -> None:
    slurm(tmp_path, PENDING, "exit 1")
    assert run(["stop"]) == 4
    assert bloom.run.state().ended is None
    assert [event.data["ok"] for event in bloom.run.journal().events if event.event == "outcome"] == [None]


@pytest.mark.parametrize("state", ["RUNNING", "CONFIGURING"])
def test_a_job_that_is_starting_is_left_to_its_supervisor(bloom: Made, tmp_path: Path, state: str) -> None:
    called = slurm(tmp_path, PENDING.replace("PENDING", state))
    assert run(["stop"]) == 0
    assert control(bloom) == ["kill"] and not called.exists()
    assert bloom.run.state().ended is None


def test_a_job_of_another_name_is_never_cancelled(bloom: Made, tmp_path: Path) -> None:
    called = slurm(tmp_path, f"echo '12|PENDING|{ME}|other.99999999|Resources|'")
    assert run(["stop"]) == 0
    assert not called.exists()


def test_a_running_run_is_asked_and_its_grace_is_told(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    called = slurm(tmp_path, PENDING.replace("PENDING", "RUNNING"))
    bloom.started()
    bloom.attempt()
    sees(bloom)
    assert run(["stop"]) == 0
    assert control(bloom) == ["kill"] and not called.exists()
    said = capsys.readouterr().err
    assert "is asked to save and end, and has 15 min for that" in said and "no handler for SIGUSR2" in said
    assert "Nothing is restarted" in said


QUEUED = f"echo '13|PENDING|{ME}|bloom.1a2b3c4d|JobHeldUser|'"


def handed_over(bloom: Made) -> None:
    """The first job has ended, and job 13 is to go on."""
    bloom.started()
    bloom.attempt()
    bloom.event("submitted", job="13", successor_of="12", exclude=[])
    bloom.event("attempt_ended", attempt=1, how="failed", exit_code=1)
    bloom.event("resubmitted", job="13", exclude=[], why="on hold")


@pytest.mark.parametrize("before", [
    QUEUED, f"echo '12|COMPLETING|{ME}|bloom.1a2b3c4d|None|n0'; {QUEUED}",
], ids=["alone", "behind a job that hangs at its end"])
def test_a_next_job_that_waits_with_no_job_before_it_is_taken_out_of_the_queue(
    bloom: Made, tmp_path: Path, before: str
) -> None:
    handed_over(bloom)
    called = slurm(tmp_path, before, before.partition(";")[0] if ";" in before else "exit 0")
    assert run(["stop"]) == 0
    assert called.read_text() == f"--state=PENDING --user={ME} --name=bloom.1a2b3c4d 13\n"
    state = bloom.run.state()
    why = f"{ME} stopped it while none of its jobs ran; job 13 taken out of the queue"
    assert state.ended and state.ended.why == why


def test_a_next_job_behind_one_that_runs_is_its_supervisors(bloom: Made, tmp_path: Path) -> None:
    handed_over(bloom)
    called = slurm(tmp_path, f"echo '12|RUNNING|{ME}|bloom.1a2b3c4d|None|n0'; {QUEUED}")
    sees(bloom)
    assert run(["stop"]) == 0
    assert not called.exists() and bloom.run.state().ended is None


def test_now_kills_without_grace(bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bloom.started()
    bloom.attempt()
    sees(bloom, "kill-now")
    assert run(["stop", "--now"]) == 0
    assert control(bloom) == ["kill-now"]
    assert "is killed within seconds" in capsys.readouterr().err


def test_a_stop_that_nobody_has_seen_is_no_success_and_says_what_is_missing(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm(tmp_path, PENDING.replace("PENDING", "RUNNING"))
    bloom.started()
    bloom.attempt()
    sees(bloom, "checkpoint")   # a milder one, before
    assert run(["stop"]) == 124
    said = capsys.readouterr().err
    assert "not confirmed" in said and "its job still runs" in said and "safelaunch status" in said


def test_a_stop_is_confirmed_as_soon_as_the_supervisor_writes_that_it_saw_it(
    bloom: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(confirmation, "CONFIRM_S", 60.0)
    slurm(tmp_path, PENDING.replace("PENDING", "RUNNING"))
    bloom.started()
    bloom.attempt()
    leader = threading.Timer(0.3, sees, (bloom,))
    leader.start()
    assert run(["stop"]) == 0
    assert "its supervisor has seen it" in capsys.readouterr().err
    leader.join()


@pytest.mark.parametrize(("pulse_age_s", "code"), [(20.0, 0), (90.0, 124)])
def test_a_supervisor_with_a_fresh_pulse_is_waited_for(
    bloom: Made, tmp_path: Path, pulse_age_s: float, code: int
) -> None:
    slurm(tmp_path, PENDING.replace("PENDING", "RUNNING"))
    bloom.started()
    bloom.attempt()
    bloom.pulse(pulse_age_s)
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if "is waited for" in text:
            sees(bloom)

    assert stopping.stop(bloom.dir, "kill", None, say) == code, said
    assert any("its supervisor lives: its pulse is 2" in text for text in said) == (code == 0), said


def test_a_run_of_which_slurm_knows_no_job_any_more_needs_no_supervisors_word(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make_run(tmp_path / "here", cluster="local")
    made.event("submitted", gen=0, host=os.uname().nodename.split(".")[0], job="999999999")
    made.started(job="999999999")
    assert run(["stop", str(made.dir)]) == 0
    assert "none of its jobs runs" in capsys.readouterr().err


def test_stopping_twice_names_who_was_first(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    bloom.started()
    sees(bloom)
    for _ in range(2):
        assert run(["stop"]) == 0
    assert f"{ME} has asked for that already, at 20" in capsys.readouterr().err


def test_a_run_that_has_ended_is_left_alone(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    bloom.started()
    bloom.attempt()
    bloom.completed()
    assert run(["stop"]) == 0
    assert control(bloom) == []
    assert "nothing to stop: the run has completed" in capsys.readouterr().err


def test_a_kill_file_elsewhere_is_the_one_that_is_touched(bloom: Made, tmp_path: Path) -> None:
    made = make_run(tmp_path / "other", YAML + f"kill_switch: {{file: {tmp_path}/KILL}}\n")
    made.running()
    sees(made)
    assert run(["stop", str(made.dir)]) == 0
    assert (tmp_path / "KILL").exists()


@pytest.mark.parametrize(("words", "left_s"), [([], 900.0), (["--within", "2h"], 7200.0), (["--within", "1m"], 60.0)])
def test_stop_at_the_next_checkpoint_shows_its_deadline_and_leaves_it_to_the_supervisor(
    tmp_path: Path, bloom: Made, capsys: pytest.CaptureFixture[str], words: list[str], left_s: float
) -> None:
    made = make_run(tmp_path / "saves", YAML + "resume: {dir: ckpt, by: training}\n")
    made.running()
    sees(made, "checkpoint")
    began_t = time.time()
    assert run(["stop", "--checkpoint", *words, str(made.dir)]) == 0
    ended_t = time.time()
    assert control(made) == ["checkpoint"]
    until_t = (made.dir / "control" / "checkpoint").stat().st_mtime + made.run.plan.kill_switch.grace_s
    assert began_t - 1.0 <= until_t - left_s <= ended_t + 1.0
    said = capsys.readouterr().err
    assert "ends as soon as its next checkpoint is complete" in said
    assert f"at the latest at {talk.moment(until_t)}" in said


def test_a_queued_run_that_is_to_stop_at_a_checkpoint_is_taken_out_of_the_queue(bloom: Made, tmp_path: Path) -> None:
    made = make_run(tmp_path / "saves", YAML + "resume: {dir: ckpt, by: training}\n")
    made.submitted()
    slurm(tmp_path, PENDING)
    assert run(["stop", "--checkpoint", str(made.dir)]) == 0
    assert made.run.state().ended is not None
    names = [event.data["name"] for event in made.run.journal().events if event.event == "kill_switch"]
    assert names == ["checkpoint"]


@pytest.mark.parametrize(("words", "said"), [
    (["--checkpoint", "--now"], "exclude each other"),
    (["--within", "2h"], "needs --checkpoint"),
    (["--checkpoint", "--within", "soon"], "--within soon"),
    (["--checkpoint", "--within", "3s"], "at least 10 s"),
])
def test_what_makes_no_sense_together_is_refused(
    bloom: Made, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert run(["stop", *words]) == 2
    assert said in capsys.readouterr().err and control(bloom) == []


def test_a_run_without_checkpoints_cannot_be_stopped_at_one(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stop", "--checkpoint"]) == 2
    assert "has no resume.dir" in capsys.readouterr().err and control(bloom) == []


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be another user")
def test_who_may_not_stop_it_is_told_who_may() -> None:
    with tempfile.TemporaryDirectory() as folder:   # tmp_path is closed to other users
        Path(folder).chmod(0o755)
        made = make_run(Path(folder) / "bloom")
        made.dir.chmod(0o755)
        # Everything is imported first: the other user may not be able to read this Python's packages.
        program = ("import os, sys; sys.path[:0] = %r\n"
                   "import safelaunch.verbs.control.stop; from safelaunch.cli import run\n"
                   "os.setgroups([]); os.setgid(65534); os.setuid(65534)\nsys.exit(run(['stop', %r]))")
        done = subprocess.run([sys.executable, "-c", program % (sys.path, str(made.dir))], text=True,
                              capture_output=True, timeout=120, cwd="/")
        assert done.returncode == 2, done.stderr
        assert f"you may not touch {made.dir}/control/kill: only {ME}" in done.stderr
        assert "kill_switch.group" in done.stderr


# --- on a real Slurm ------------------------------------------------------------------------------------------------


def test_a_queued_job_of_a_real_slurm_is_gone_and_the_run_has_ended(
    sandbox: Sandbox, submit: Callable[[Sandbox], Submit]
) -> None:
    drill = submit(sandbox)("--steps 20", overrides=("slurm.begin=now+1hour",), wait_started=False)

    done = drill.as_user("stop", str(drill.run_dir))

    assert done.returncode == 0, done.stderr
    state = drill.wait_end(5)
    assert state.ended is not None and (state.ended.how, state.ended.exit_code) == ("stopped", 12)
    assert drill.as_user("wait", str(drill.run_dir), "--timeout", "5s").returncode == 12


def test_a_teammate_stops_a_queued_run_that_he_may_not_read(
    sandbox: Sandbox, submit: Callable[[Sandbox], Submit]
) -> None:
    drill = submit(sandbox)("--steps 20", overrides=("slurm.begin=now+1hour", "kill_switch.group=sl-team"),
                            wait_started=False)

    done = drill.as_user("stop", str(drill.run_dir), user="sl-bob")

    assert done.returncode == 0, done.stderr
    assert (drill.run_dir / "control" / "kill").exists()
    sandbox.slurm(["scontrol", "update", f"JobId={drill.job}", "StartTime=now"])
    state = drill.wait_end()
    assert state.ended is not None and state.ended.how == "stopped" and "sl-bob" in state.ended.why
