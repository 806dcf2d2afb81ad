"""safelaunch hold, resume, extend: a run waits for a person's word, and kept nodes are kept for longer."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from safelaunch.base.io.owners import name_of
from safelaunch.cli import run
from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import AHEAD, FLAGS, finish, tell_last
from tests.handmade import YAML, Made, fake_command, make_run
from tests.localruns import SubmitLocal
from tests.runs import Drill, Submit

ME = name_of(os.getuid())
NAME = "bloom.1a2b3c4d"


@pytest.fixture
def bloom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    made = make_run(tmp_path / "bloom")
    made.submitted()
    return made


class Queue:
    """A Slurm of one job, "ID|STATE|USER|NAME|REASON|": scontrol changes its reason, and notes its words."""

    def __init__(self, folder: Path, *jobs: str, scontrol: str = "", squeue: str = "") -> None:
        self.jobs, self.words = folder / "jobs", folder / "scontrol.words"
        self.jobs.write_text("".join(f"{job}\n" for job in jobs))
        held = "s/|PENDING|\\(.*\\)|[A-Za-z]*|$/|PENDING|\\1|JobHeldUser|/"
        change = (f"[[ $1 == uhold ]] && sed -i '{held}' {self.jobs}\n"
                  f"[[ $1 == release ]] && sed -i 's/JobHeldUser/None/' {self.jobs}\nexit 0")
        fake_command(folder / "bin", "squeue", squeue or f"cat {self.jobs}")
        fake_command(folder / "bin", "scontrol", f'echo "$*" >>{self.words}\n{scontrol or change}')

    @property
    def said(self) -> list[str]:
        """What scontrol was told."""
        return self.words.read_text().splitlines() if self.words.exists() else []


def job(id: str, state: str = "PENDING", reason: str = "Dependency", name: str = NAME) -> str:
    return f"{id}|{state}|{ME}|{name}|{reason}|"


def is_asked(made: Made, name: str = "hold") -> bool:
    return (made.dir / "control" / name).exists()


def told(made: Made, kind: str) -> list[dict[str, object]]:
    """Data of the events of one kind that a verb wrote."""
    return [dict(event.data) for event in made.run.journal().events if event.event == kind and event.gen == 0]


def test_a_running_attempt_goes_on_and_the_queued_successor_is_held(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bloom.started()
    bloom.attempt()
    queue = Queue(tmp_path, job("12", "RUNNING", "None"), job("13"))
    assert run(["hold", "--why", "new data come tonight"]) == 0
    assert queue.said == ["uhold 13"] and is_asked(bloom)
    said = capsys.readouterr().err
    assert "attempt 1 goes on untouched" in said and "job 13 stays in the queue, held" in said
    assert f"safelaunch resume {bloom.dir}" in said


def test_the_hold_and_its_reason_are_journalled_around_the_act(bloom: Made, tmp_path: Path) -> None:
    Queue(tmp_path, job("12"))
    assert run(["hold", "--why", "new data come tonight"]) == 0
    assert told(bloom, "decision") == [
        {"row": "hold", "action": "hold", "why": f"{ME} put the run on hold: new data come tonight"}]
    assert told(bloom, "intent") == [{"claim": 1, "act": "hold_jobs", "jobs": ["12"]}]
    assert told(bloom, "outcome") == [{"claim": 1, "act": "hold_jobs", "ok": True}]
    assert (bloom.dir / "control" / "hold").read_text() == "new data come tonight\n"
    assert bloom.run.state().intents == ()


def test_holding_twice_changes_nothing_and_names_who_was_first(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = Queue(tmp_path, job("12"))
    for _ in range(2):
        assert run(["hold"]) == 0
    assert queue.said == ["uhold 12"]
    assert len(told(bloom, "decision")) == len(told(bloom, "intent")) == 1
    assert "is on hold already, since 20" in (said := capsys.readouterr().err) and f"by {ME}" in said


def test_a_job_of_another_name_is_never_held(bloom: Made, tmp_path: Path) -> None:
    queue = Queue(tmp_path, job("12", name="other.99999999"))
    assert run(["hold"]) == 0
    assert queue.said == []


def test_a_job_that_starts_in_the_moment_of_the_hold_is_left_to_its_supervisor(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Queue(tmp_path, job("12"), scontrol=f"sed -i 's/PENDING/RUNNING/; s/Dependency/JobHeldUser/' {tmp_path / 'jobs'}")
    assert run(["hold"]) == 0
    assert "job 12 is left as it is: it has just started: its supervisor sees the hold" in capsys.readouterr().err


def test_a_job_that_is_held_after_the_run_was_resumed_is_released_at_once(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`resume` takes the file away and looks for held jobs; one that is held after that look would wait for ever."""
    held = f"sed -i 's/Dependency/JobHeldUser/' {tmp_path / 'jobs'}; rm -f {bloom.dir / 'control' / 'hold'}"
    queue = Queue(tmp_path, job("12"), scontrol=f"if [[ $1 == uhold ]]; then {held}; else "
                                                f"sed -i 's/JobHeldUser/None/' {tmp_path / 'jobs'}; fi")
    assert run(["hold"]) == 0
    assert queue.said == ["uhold 12", "release 12"]
    assert "job 12 is left as it is: the run has been resumed meanwhile" in capsys.readouterr().err


def test_a_job_that_slurm_shows_at_the_second_look_only_is_released(bloom: Made, tmp_path: Path) -> None:
    looked, jobs = tmp_path / "looked", tmp_path / "jobs"
    queue = Queue(tmp_path, job("12", reason="JobHeldUser"),
                  squeue=f"[[ -e {looked} ]] && cat {jobs}; touch {looked}")
    assert run(["resume"]) == 0
    assert queue.said == ["release 12"]


@pytest.mark.parametrize(("verb", "said"), [
    ("hold", "Slurm does not answer"), ("resume", "whether a job of it is held is unknown"),
], ids=["hold", "resume"])
def test_without_an_answer_of_slurm_the_file_counts_and_nothing_is_claimed(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str, said: str
) -> None:
    queue = Queue(tmp_path, squeue="echo 'Unable to contact slurm controller' >&2; exit 1")
    assert run([verb]) == 4
    assert is_asked(bloom) == (verb == "hold") and queue.said == []
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["hold", "resume"])
def test_what_slurm_refuses_is_told_with_its_words(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    Queue(tmp_path, job("12", reason="JobHeldUser" if verb == "resume" else "Priority"),
          scontrol="echo 'Access/permission denied for job 12' >&2; exit 1")
    assert run([verb]) == 3
    assert "Access/permission denied for job 12" in capsys.readouterr().err
    assert [outcome["ok"] for outcome in told(bloom, "outcome")] == [False]


def test_an_answer_that_is_lost_after_the_act_leaves_the_outcome_unknown(bloom: Made, tmp_path: Path) -> None:
    Queue(tmp_path, job("12"), squeue=f"[[ -e {tmp_path / 'scontrol.words'} ]] && exit 1; cat {tmp_path / 'jobs'}")
    assert run(["hold"]) == 4
    assert [outcome["ok"] for outcome in told(bloom, "outcome")] == [None]


def test_resume_takes_the_file_away_and_releases_the_job(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = Queue(tmp_path, job("12"))
    assert run(["hold"]) == 0
    (bloom.dir / "control" / "checkpoint").touch()
    assert run(["resume"]) == 0
    assert not is_asked(bloom) and is_asked(bloom, "checkpoint")
    assert queue.said == ["uhold 12", "release 12"]
    said = capsys.readouterr().err
    assert f"bloom goes on, which {ME} had put on hold; job 12 is released" in said
    assert told(bloom, "outcome")[-1] == {"claim": 2, "act": "release_jobs", "ok": True}


def test_resuming_what_is_not_on_hold_says_so_and_changes_nothing(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = Queue(tmp_path, job("12"))
    assert run(["resume"]) == 0
    assert queue.said == [] and told(bloom, "decision") == []
    assert "bloom is not on hold" in capsys.readouterr().err


def test_a_job_that_was_held_by_hand_is_released_too(bloom: Made, tmp_path: Path) -> None:
    queue = Queue(tmp_path, job("12", reason="JobHeldUser"))
    assert run(["resume"]) == 0
    assert queue.said == ["release 12"]


def test_what_an_administrator_holds_is_his(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = Queue(tmp_path, job("12", reason="JobHeldAdmin"))
    assert run(["hold"]) == 0
    assert run(["resume"]) == 0
    assert queue.said == []
    assert "job 12 is left as it is: an administrator holds it" in capsys.readouterr().err


def test_a_run_without_a_job_is_told_when_it_is_to_go_on(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Queue(tmp_path)
    assert run(["hold"]) == 0
    assert run(["resume"]) == 0
    assert "Slurm knows no job of it; to queue one: safelaunch watch --once" in capsys.readouterr().err


def test_an_ended_run_is_not_held_and_cannot_go_on(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    bloom.started()
    bloom.attempt()
    bloom.completed()
    assert run(["hold"]) == 0
    assert not is_asked(bloom)
    assert run(["resume"]) == 2
    said = capsys.readouterr().err
    assert "nothing to hold: the run has completed" in said and "safelaunch submit train.yaml" in said


def test_json_says_what_became_of_the_jobs(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Queue(tmp_path, job("12"), job("13", "RUNNING", "None"))
    assert run(["hold", "--json"]) == 0
    assert run(["resume", "--json"]) == 0
    held, resumed = map(json.loads, capsys.readouterr().out.splitlines())
    assert (held["v"], held["held"], held["who"], held["trouble"]) == (1, True, ME, "")
    assert held["jobs"] == resumed["jobs"] == [{"id": "12", "state": "changed"}]
    assert resumed["held"] is False and "job 12 is released" in resumed["sentence"]


# --- extend ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path: Path, bloom: Made) -> Made:
    """A run whose nodes are kept for another minute, by preserve_site.for of an hour."""
    made = make_run(tmp_path / "kept", YAML + "preserve_site: {for: 1h}\n")
    made.running()
    made.failed()
    made.event("preserved", until=made.now + 60, nodes=["n0"])
    return made


@pytest.mark.parametrize(("words", "for_s"), [((), 3600), (("--for", "2h"), 7200), (("--for", "5m"), 300)],
                         ids=["as before", "longer", "shorter"])
def test_the_requests_time_and_preserve_site_for_say_until_when(
    kept: Made, words: tuple[str, ...], for_s: float, capsys: pytest.CaptureFixture[str]
) -> None:
    began_t = time.time()
    assert run(["extend", str(kept.dir), "--json", *words]) == 0
    until_t = json.loads(capsys.readouterr().out)["until_t"]
    request_t = (kept.dir / "control" / "extend").stat().st_mtime
    assert request_t + kept.run.plan.preserve.for_s == pytest.approx(until_t, abs=0.01)
    assert began_t - 1.0 <= until_t - for_s <= time.time() + 1.0


def test_each_extension_counts_from_its_own_time(kept: Made) -> None:
    request = kept.dir / "control" / "extend"
    request.touch()
    os.utime(request, (kept.now - 3000, kept.now - 3000))
    assert run(["extend", str(kept.dir)]) == 0
    assert request.stat().st_mtime >= kept.now - 1


def test_an_extension_never_shortens(kept: Made, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["extend", str(kept.dir)]) == 0
    before = (kept.dir / "control" / "extend").stat().st_mtime_ns
    assert run(["extend", str(kept.dir), "--for", "10m"]) == 0
    assert (kept.dir / "control" / "extend").stat().st_mtime_ns == before
    assert "already, which is longer" in capsys.readouterr().err


def test_where_nothing_is_kept_nothing_is_touched(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    bloom.started()
    bloom.attempt()
    assert run(["extend"]) == 2
    assert not is_asked(bloom, "extend")
    assert "preserve_site in train.yaml" in capsys.readouterr().err


def test_an_odd_time_is_refused(kept: Made, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["extend", str(kept.dir), "--for", "15:00"]) == 2
    assert "expected a duration" in capsys.readouterr().err


# --- real parts -----------------------------------------------------------------------------------------------------


def test_a_local_run_on_hold_starts_nothing_new_until_resume(submit_local: SubmitLocal) -> None:
    local = submit_local("--steps 100000 --step-time 0.05 --until last")
    local.wait_step(5)
    done = local.type("hold", str(local.run_dir), "--why", "wait")
    assert done.returncode == 0 and "nothing new is started after it" in done.stderr
    local.wait_for(lambda: local.events("request"), 60, "the hold is not seen")
    os.kill(local.ranks()[0], signal.SIGKILL)
    local.wait_for(lambda: any(event.data.get("row") == "held" for event in local.events("decision")), 60, "no wait")
    assert local.state().ended is None and len(local.state().attempts) == 1
    tell_last(local.folder, max(map(int, re.findall(r"step (\d+) loss", local.log(1)))) + AHEAD)
    assert local.type("resume", str(local.run_dir)).returncode == 0
    assert local.wait_end().how == "completed"
    assert len(local.state().attempts) == 2


def test_an_extended_site_is_kept_beyond_its_time(submit_local: SubmitLocal) -> None:
    # 30 s: the word must be typed within that time, which took more than 3 s at a load of 17.
    local = submit_local("--steps 400 --step-time 0.01 --die-at 10", "restart.max_restarts=0", "preserve_site.for=30s",
                         "preserve_site.when=[unknown, host_oom]")
    local.wait_for(lambda: local.state().preserving_until, 60, "nothing is kept")
    kept_t = local.state().preserving_until
    assert kept_t is not None
    done = local.type("extend", str(local.run_dir), "--for", "1h")
    assert done.returncode == 0, done.stderr
    local.wait_for(lambda: time.time() > kept_t + 2, 120, "time does not pass")
    assert local.state().ended is None
    assert (local.state().preserving_until or 0.0) > kept_t + 3000, "the journal says so, and status with it"
    local.type("release", str(local.run_dir))
    assert local.wait_end().how == "gave_up"


def reasons(drill: Drill) -> dict[str, str]:
    """job → state|reason, as Slurm has it."""
    rows = drill.sandbox.slurm(["squeue", "-h", "-o", "%i|%T|%r"]).split()
    return {row.split("|")[0]: row.partition("|")[2] for row in rows}


def test_a_queued_job_of_a_real_slurm_waits_for_resume_and_completes(
    sandbox: Sandbox, submit: Callable[[Sandbox], Submit]
) -> None:
    drill = submit(sandbox)("--steps 20 --step-time 0.01", overrides=("slurm.begin=now+1hour",), wait_started=False)

    done = drill.as_user("hold", str(drill.run_dir))
    assert done.returncode == 0 and f"job {drill.job} stays in the queue, held" in done.stderr
    assert reasons(drill)[drill.job] == "PENDING|JobHeldUser"
    sandbox.slurm(["scontrol", "update", f"JobId={drill.job}", "StartTime=now"])
    assert reasons(drill)[drill.job] == "PENDING|JobHeldUser"

    done = drill.as_user("resume", str(drill.run_dir))
    assert done.returncode == 0, done.stderr
    state = drill.wait_end()
    assert state.ended is not None and state.ended.how == "completed"


def test_an_attempt_that_fails_on_hold_is_followed_by_nothing_until_resume(
    sandbox: Sandbox, submit: Callable[[Sandbox], Submit]
) -> None:
    drill = submit(sandbox)(FLAGS)
    drill.wait_for(lambda: drill.state().successor, 60, "no successor was queued")
    successor = drill.state().successor
    assert successor is not None

    done = drill.as_user("hold", str(drill.run_dir), "--why", "the disk is being changed")
    assert done.returncode == 0 and f"job {successor} stays in the queue, held" in done.stderr
    assert reasons(drill)[successor] == "PENDING|JobHeldUser"
    drill.wait_event("request")
    drill.kill(drill.ranks()[0])
    drill.wait_for(lambda: drill.job not in reasons(drill), 60, "the job on hold did not end")
    assert reasons(drill) == {successor: "PENDING|JobHeldUser"}
    assert len(drill.state().attempts) == 1

    tell_last(drill.folder, max(drill.steps()) + AHEAD)   # of the next attempt
    done = drill.as_user("resume", str(drill.run_dir))
    assert done.returncode == 0 and f"job {successor} is released" in done.stderr
    state = drill.wait_end()
    assert state.ended is not None and state.ended.how == "completed"
    assert len(state.attempts) == 2


def test_an_attempt_runs_on_through_hold_and_resume(sandbox: Sandbox, submit: Callable[[Sandbox], Submit]) -> None:
    drill = submit(sandbox)(FLAGS)   # until it is told: both words take seconds on a machine that others use
    drill.wait_for(lambda: drill.state().successor, 60, "no successor was queued")
    drill.wait_step(3)
    assert drill.as_user("hold", str(drill.run_dir)).returncode == 0
    drill.wait_event("request")
    assert drill.as_user("resume", str(drill.run_dir)).returncode == 0
    finish(drill)
    state = drill.wait_end()
    assert state.ended is not None and state.ended.how == "completed" and len(state.attempts) == 1


def test_a_teammate_holds_a_run_whose_jobs_he_may_not_change(
    sandbox: Sandbox, submit: Callable[[Sandbox], Submit]
) -> None:
    drill = submit(sandbox)("--steps 20", overrides=("slurm.begin=now+1hour", "kill_switch.group=sl-team"),
                            wait_started=False)

    done = drill.as_user("hold", str(drill.run_dir), user="sl-bob")

    assert done.returncode == 0, done.stderr
    assert (drill.run_dir / "control" / "hold").exists()
    assert f"job {drill.job} is left as it is: only sl-alice can change it" in done.stderr
    assert drill.as_user("resume", str(drill.run_dir)).returncode == 0
    assert not (drill.run_dir / "control" / "hold").exists()
