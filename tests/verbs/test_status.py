"""safelaunch status: two witnesses, what people see, and the JSON contract."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safelaunch.base.model import Event
from safelaunch.checkpoints.io import checkpoints
from safelaunch.cli import run
from safelaunch.run.fold.folding import fold
from safelaunch.sandbox.cluster import Sandbox
from safelaunch.slurm.slurmtext import QueuedJob
from safelaunch.status.speech import SchedulerAnswer
from safelaunch.verbs.common import runs, terminal
from safelaunch.verbs.common.resumepoints import BEHIND_NAN
from safelaunch.verbs.overview import livecheckpoint
from safelaunch.verbs.overview.overview import _fold_since, node_hours, overview
from safelaunch.verbs.status.status import every, plain
from tests.effort import at_rest_s
from tests.frozen import MAX_FROZEN_S, FuseMount
from tests.handmade import YAML, Made, fake_command, make_run
from tests.pure.checkpoints.checkpoint_files import torch_file
from tests.runs import Submit

DOCS = Path(__file__).parents[2] / "docs" / "verbs.md"


@pytest.fixture
def bloom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """A run with an empty journal; squeue knows no job."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    squeue(tmp_path, "")
    return make_run(tmp_path / "runs" / "bloom")


def squeue(tmp_path: Path, *lines: str) -> None:
    """Let squeue print these lines, with two hours left."""
    fake_command(tmp_path / "bin", "squeue", "\n".join(f"echo '2:00:00|N/A|{line}'" for line in lines if line))


def job(id: str = "12", state: str = "RUNNING", reason: str = "None") -> QueuedJob:
    return QueuedJob(id, state, "alice", "bloom.1a2b3c4d", reason, "n[0-3]")


def told(made: Made, *jobs: QueuedJob) -> str:
    return plain(overview(made.run, SchedulerAnswer(jobs), made.now))


def test_the_page_folds_a_series_of_steps_to_the_state_that_a_leader_has(bloom: Made) -> None:
    bloom.running()
    for step in range(1, 5):
        bloom.event("progress", attempt=1, step=step, ago_s=60.0 - step)
    events = bloom.run.journal().events
    assert _fold_since(events)[0] == fold(events), "when the first step was made is what a restart is priced by"


def test_a_running_run_shows_step_loss_checkpoint_budget_and_why(bloom: Made) -> None:
    bloom.running(resume_step=40)
    bloom.event("decision", row="launch", why="first attempt")
    bloom.event("checkpoint", step=80, attempt=1)
    bloom.event("node_suspected", node="n3", why="its guard was silent")
    bloom.log(1, b"[n0:0]:step 91 loss 0.5\n[n0:0]:step 92 loss 0.25\n")
    text = told(bloom, job())
    for line in ("state      running", "attempt    1 on n[0-3], from step 40", "step       92, loss 0.25",
                 "checkpoint resume.dir is not set", "restarts   0 of 30 used; 0 of 3",
                 "suspect    n3: its guard was silent", "decided    ",
                 "launch: first attempt", f"next       safelaunch logs -f {bloom.dir}"):
        assert line in text


def test_what_the_log_says_of_a_step_is_shown_beside_it(bloom: Made) -> None:
    bloom.running()
    bloom.log(1, b"".join(b" iteration  %d/ 900 | elapsed time per iteration (ms): %d.0 | lm loss: 2.5E+00 | \n" % pair
                          for pair in ((88, 12000), (89, 12100), (90, 15500))) + b"tps: 7,282\n")
    assert "step       90 of 900 (10 %), loss 2.5, 15.5 s a step (median 12.1 s), 7282 tokens/s" in told(bloom, job())
    seen = overview(bloom.run, SchedulerAnswer((job(),)), bloom.now).to_json()
    assert (seen["step_time_s"], seen["typical_step_time_s"]) == (15.5, 12.1)
    assert seen["throughput"] == {"value": 7282.0, "unit": "tokens/s"}


@pytest.mark.parametrize(("sure", "word"), [(True, "lost"), (False, "perhaps lost")])
def test_an_attempt_that_started_below_its_checkpoint_is_told(bloom: Made, sure: bool, word: str) -> None:
    bloom.running(resume_step=40)
    assert overview(bloom.run, SchedulerAnswer((job(),)), bloom.now).to_json()["lost_progress"] is None
    bloom.event("lost_progress", attempt=1, step=1, resume_step=40, sure=sure, then="warn", why="it counts 1 … 3")
    assert f"progress   {word}: it counts 1 … 3" in told(bloom, job())
    assert overview(bloom.run, SchedulerAnswer((job(),)), bloom.now).to_json()["lost_progress"] == {
        "attempt": 1, "sure": sure, "why": "it counts 1 … 3"}


def test_a_drop_of_speed_that_lasts_is_shown_until_it_is_over(bloom: Made) -> None:
    bloom.running()
    level: dict[str, Any] = {"attempt": 1, "step": 60, "level_s": 111.0, "noise": 0.003, "source": "log",
                             "normal_s": 105.2}
    bloom.event("slower", **level, since_step=51, from_s=105.2, confidence=0.9999)
    assert "slower     111 s a step since step 51, before 105.2 s (5.5 % longer)" in told(bloom, job())
    bloom.event("slower_over", **{**level, "level_s": 105.2, "normal_s": None}, since_step=90, from_s=111.0,
                confidence=0.9999)
    assert overview(bloom.run, SchedulerAnswer((job(),)), bloom.now).to_json()["slower"] is None


def test_what_is_done_about_a_drop_is_shown_with_what_was_measured(bloom: Made) -> None:
    bloom.running()
    level: dict[str, Any] = {"attempt": 1, "step": 60, "level_s": 111.0, "noise": 0.003, "source": "log",
                             "normal_s": 105.2}
    bloom.event("slower", **level, since_step=51, from_s=105.2, confidence=0.9999, total=400)
    assert overview(bloom.run, SchedulerAnswer((job(),)), bloom.now).to_json()["slow_search"] is None
    assert "; nothing is ended" in told(bloom, job())
    drop = overview(bloom.run, SchedulerAnswer((job(),)), bloom.now).to_json()["slower"]
    lines = {f"n{number}": f"CPU time stolen {number} %" for number in range(6)}
    bloom.event("slow_evidence", attempt=1, drop_t=drop["t"], nodes=lines, odd={}, why="no node differs")
    bloom.event("nodes_benched", job="11", attempt=1, drop_t=drop["t"], nodes=list(lines),
                slow={"n2": "memory: 2.5% slower than the others, z 9.0"}, why="slow: n2")
    shown = told(bloom, job())
    assert "CPU time stolen" not in shown   # an earlier version asked the nodes
    assert ("slow node  n2 (memory: 2.5% slower than the others, z 9.0), of 6 that were measured after attempt 1"
            in shown)
    bloom.event("swap_judged", attempt=2, nodes=["n2"], won=False, level_s=111.0, from_s=105.2, to_s=111.0)
    assert "the speed did not come back without it" in told(bloom, job())
    seen = overview(bloom.run, SchedulerAnswer((job(),)), bloom.now).to_json()["slow_search"]
    assert (seen["won"], seen["measured"], [one["node"] for one in seen["slow"]]) == (False, 6, ["n2"])
    json.dumps(seen, allow_nan=False)


def test_an_odd_figure_is_shown_while_its_attempt_is_the_newest(bloom: Made) -> None:
    bloom.running()
    bloom.event("odd_figure", attempt=1, kind="loss_spike", step=60, value="9.5", usual=2.5, line="step 60 loss 9.5")
    bloom.event("odd_figure", attempt=1, kind="nan", step=70, value="nan", usual=None, line="step 70 loss nan")
    bloom.event("odd_figure", attempt=1, kind="nan", step=80, value="no number", usual=None, line="")   # of nobody
    shown = told(bloom, job())
    assert "figures    the loss has leapt from 2.5 to 9.5 at step 60" in shown
    assert "figures    the loss is nan in 3 step lines in a row at step 70" in shown and "step 80" not in shown
    seen = overview(bloom.run, SchedulerAnswer((job(),)), bloom.now).to_json()
    assert [(one["kind"], one["value"]) for one in seen["odd_figures"]] == [("loss_spike", "9.5"), ("nan", "nan")]
    bloom.failed()
    bloom.attempt(2)
    assert "figures " not in told(bloom, job())


@pytest.mark.parametrize(("line", "loss"), [
    (b" iteration   5/ 10 | lm loss: 2.500000E+00 |", 2.5), (b"{'loss': 0.5, 'step': 5}", 0.5),
    (b"step 5 loss=nan", "nan"), (b"step 5", None), (b"step 5 lossy 7", None),
], ids=["megatron", "transformers", "nan", "none", "another word"])
def test_the_loss_is_read_as_the_common_trainers_print_it(bloom: Made, line: bytes, loss: object) -> None:
    bloom.running()
    bloom.log(1, line + b"\n")
    seen = overview(bloom.run, SchedulerAnswer((job(),)), bloom.now).to_json()
    assert (seen["step"], seen["loss"]) == (5, loss)
    json.dumps(seen, allow_nan=False)


@pytest.fixture
def saving(tmp_path: Path, bloom: Made) -> tuple[Made, Path]:
    """A run that resumes from ckpt, at step 92 of 400, and that folder."""
    made = make_run(tmp_path / "saving", YAML.replace("train.py", "train.py ${RESUME_ARGS}")
                    + 'resume: {dir: ckpt, format: torch, args: "--load {path}"}\n')
    made.running()
    made.event("checkpoint", step=40, attempt=1)
    made.log(1, b"step 91/400 loss 0.5, 250 ms/step\nstep 92/400 loss 0.5, 250 ms/step\n")
    (tmp_path / "ckpt").mkdir()
    return made, tmp_path / "ckpt"


def test_the_newest_complete_checkpoint_is_that_of_now_and_not_of_the_last_attempts_end(
    saving: tuple[Made, Path]
) -> None:
    made, folder = saving
    for step in (60, 80):
        (folder / f"step_{step}.pt").write_bytes(torch_file())
        os.utime(folder / f"step_{step}.pt", (made.now - 200, made.now - 200))
    (folder / "step_90.pt").write_bytes((folder / "step_80.pt").read_bytes()[:-40])
    page = overview(made.run, SchedulerAnswer((job(),)), made.now)
    seen = page.to_json()
    text = plain(page)
    assert "checkpoint step 80 is the newest complete one, 3 min old; an end now would lose 12 steps (3 s)" in text
    assert f"skipped    {folder}/step_90.pt: " in text
    assert "step       92 of 400 (23 %), loss 0.5, 250 ms a step" in text and "ETA        done in 1 min, at " in text
    assert (seen["checkpoint_step"], seen["checkpoint"]["steps_at_risk"]) == (80, 12)
    json.dumps(seen, allow_nan=False)


def test_a_checkpoint_that_did_not_load_is_not_called_the_newest(saving: tuple[Made, Path]) -> None:
    made, folder = saving
    for step in (60, 80):
        (folder / f"step_{step}.pt").write_bytes(torch_file())
    made.event("checkpoint_rejected", path=str(folder / "step_80.pt"), step=80, attempt=1, why="it does not load")
    seen = overview(made.run, SchedulerAnswer((job(),)), made.now).to_json()
    assert seen["checkpoint"]["path"] == str(folder / "step_60.pt")


def test_a_checkpoint_behind_a_nan_is_not_the_newest_until_it_is_written_again(saving: tuple[Made, Path]) -> None:
    made, folder = saving
    paths = [folder / f"step_{step}.pt" for step in (60, 70, 80)]
    for path in paths:
        path.write_bytes(torch_file())
        os.utime(path, (1000.0, 1000.0))
    made.event("checkpoints_cut", attempt=1, step=75, upto=65, is_left=True,
               checkpoints=[[str(path), step, 1000.0] for path, step in zip(paths[1:], (70, 80), strict=True)])
    seen = overview(made.run, SchedulerAnswer((job(),)), made.now).to_json()["checkpoint"]
    assert (seen["step"], [one["reason"] for one in seen["skipped"]]) == (60, [BEHIND_NAN] * 2)
    os.utime(paths[1], (2000.0, 2000.0))
    assert overview(made.run, SchedulerAnswer((job(),)), made.now).to_json()["checkpoint"]["step"] == 70


def test_a_checkpoint_folder_that_hangs_costs_two_seconds_and_is_said(
    saving: tuple[Made, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = saving
    monkeypatch.setattr(livecheckpoint, "DEADLINE_S", 0.2)
    monkeypatch.setattr(checkpoints, "survey", lambda *words: time.sleep(600))
    begun_s = time.monotonic()
    text = plain(overview(made.run, SchedulerAnswer((job(),)), made.now))
    assert time.monotonic() - begun_s < 300
    assert "checkpoint not known: " in text and "the last one that the journal names is of step 40" in text


def test_when_the_job_ends_does_not_move_while_slurm_is_not_asked(bloom: Made) -> None:
    bloom.running()
    word = SchedulerAnswer((job()._replace(left_s=7200.0),), asked_t=bloom.now - 40)
    assert overview(bloom.run, word, bloom.now).to_json()["job"]["ends_t"] == round(bloom.now - 40 + 7200)


def test_a_cheap_look_is_taken_again_sooner_and_a_dear_one_later() -> None:
    for seconds, share, looks in ((60.0, 1.0, 3), (60.0, 1e-9, 1), (0.0, 0.0, 3), (60.0, 0.0, 1)):
        numbers = itertools.count(1)
        look = every(seconds, numbers.__next__, share)
        assert [look() for _ in range(3)][-1] == looks, (seconds, share)


def test_when_the_job_ends_is_slurms_word(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bloom.running()
    squeue(tmp_path, "12|RUNNING|root|bloom.1a2b3c4d|None|n[0-3]")
    assert run(["status", str(bloom.dir), "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert 7000 < seen["job"]["ends_t"] - seen["now_t"] <= 7201
    assert run(["status"]) == 0
    assert "its time limit ends it at " in capsys.readouterr().out


def test_rows_are_folded_behind_their_labels_on_a_terminal() -> None:
    told = terminal.lines([("run", "one two " * 9, ""), ("", "next", "")], 40)
    assert [line[:11] for line in told] == ["run        ", *[" " * 11] * 3]
    assert max(map(len, told)) <= 40 and " ".join(line[11:] for line in told).split() == [*["one", "two"] * 9, "next"]


def test_colours_come_only_where_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert terminal.has_colour()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not terminal.has_colour()
    assert terminal.lines([("state", "running", "green")], 80, colour=True) == [
        "\x1b[2mstate      \x1b[0m\x1b[32mrunning\x1b[0m"]


def test_the_step_of_an_earlier_attempt_is_not_shown_for_the_new_one(bloom: Made) -> None:
    bloom.running()
    bloom.event("progress", attempt=1, step=100)
    bloom.failed(1)
    bloom.attempt(2)
    bloom.log(1, b"step 100\n")
    assert overview(bloom.run, SchedulerAnswer((job(),)), bloom.now).to_json()["step"] is None


def test_a_stale_pulse_is_told_and_nobody_is_called_dead(bloom: Made) -> None:
    bloom.running()
    bloom.pulse(age_s=95)
    text = told(bloom, job())
    assert "no sign of life from the supervisor on n0 for 1 min" in text
    assert "dead" not in text


@pytest.mark.parametrize("when", ["before the start", "after the end", "between two jobs"])
def test_an_old_pulse_is_no_alarm(bloom: Made, when: str) -> None:
    bloom.submitted()
    if when != "before the start":
        bloom.running()
    if when == "after the end":
        bloom.completed()
    elif when == "between two jobs":   # on hold, for instance
        bloom.event("handed_over", job="13", why="a hold")
    bloom.pulse(age_s=500)
    assert "no sign of life" not in told(bloom, job(state="PENDING"))


def test_a_supervisor_that_never_gave_a_pulse_is_told(bloom: Made) -> None:
    bloom.event("submitted", job="12")
    bloom.event("job_started", ago_s=300, job="12", nodes=["n0"], batch_host="n0")
    assert "no sign of life from a supervisor since" in told(bloom, job())


def test_a_clock_that_is_behind_raises_no_alarm(bloom: Made) -> None:
    bloom.running()
    bloom.pulse(age_s=500, mtime_age_s=1)
    assert overview(bloom.run, SchedulerAnswer((job(),)), bloom.now).to_json()["pulse"]["is_stale"] is False


@pytest.mark.parametrize(("in_s", "attempt", "says"), [
    (40.0, 1, "hang check at"), (-5.0, 1, "hang check since"), (40.0, 2, ""),
], ids=["not yet", "is looked at", "an attempt that is over"])
def test_when_a_silence_would_be_called_a_hang_is_told_of_this_attempt(
    bloom: Made, in_s: float, attempt: int, says: str
) -> None:
    bloom.running()
    bloom.pulse(age_s=5, attempt=attempt, hang_t=bloom.now + in_s)
    rows = [line for line in told(bloom, job()).splitlines() if line.startswith("hang ")]
    assert [says in row for row in rows] == [True] * bool(says)


def test_kept_nodes_come_with_the_way_in_the_way_out_and_the_cost(bloom: Made) -> None:
    bloom.submitted()
    bloom.event("job_started", ago_s=1800, job="12", nodes=["n0", "n1", "n2", "n3"], batch_host="n0")
    bloom.attempt()
    bloom.failed()
    bloom.event("preserved", until=bloom.now + 3601, nodes=["n0"])
    text = told(bloom, job())
    assert "state      preserving" in text and "(1 h left), for people to look" in text
    (bloom.dir / "control" / "extend").touch()
    assert "touched extend" not in told(bloom, job()), "its time is no time at which somebody did something"
    assert "used       2 node-hours, 16 GPU-hours so far" in text
    assert f"safelaunch shell {bloom.dir} n0" in text and f"safelaunch release {bloom.dir}" in text


@pytest.mark.parametrize("word", ["handed_over", "resubmitted"], ids=["now", "as earlier versions wrote it"])
def test_node_hours_count_each_job_until_it_hands_over(word: str) -> None:
    events = [
        Event(0.0, 1, 1, "n0", "job_started", {"nodes": ["n0", "n1"]}),
        Event(1800.0, 1, 2, "n0", "successor_lost", {"job": "12"}),   # its own job goes on
        Event(3600.0, 1, 3, "n0", word, {"job": "13"}),
        Event(9000.0, 2, 1, "n0", "job_started", {"nodes": ["n0"]}),
        Event(12600.0, 2, 2, "n0", "progress", {}),
    ]
    assert node_hours(events, 16200.0) == pytest.approx(2.0 + 2.0)


def test_who_touched_the_kill_switch_is_shown_before_the_leader_has_seen_it(bloom: Made) -> None:
    bloom.running()
    (bloom.dir / "control" / "kill").touch()
    assert "touched kill at" in told(bloom, job())


def test_the_successor_is_shown_with_slurms_reason(bloom: Made) -> None:
    bloom.running()
    bloom.event("submitted", job="13", successor_of="12")
    assert "job 13 is queued behind it (Dependency: it waits" in told(bloom, job(), job("13", "PENDING", "Dependency"))


def test_a_pause_between_attempts_says_when_the_next_one_starts_and_where_the_time_went(bloom: Made) -> None:
    bloom.submitted(ago_s=400)
    bloom.started(ago_s=300)
    bloom.attempt(ago_s=300)
    bloom.failed(1, ago_s=100)
    bloom.event("decision", row="back_off", why="waiting", until=bloom.now + 40)
    text = told(bloom, job())
    assert "then       the next attempt starts in 40 s" in text
    assert "time       0 % of 6 min useful; the rest: start-up 3 min, queue 1 min, down 1 min" in text


def test_a_hostile_reason_of_the_queue_stays_text(bloom: Made) -> None:
    bloom.submitted()
    text = told(bloom, job(state="PENDING", reason="Resources\x1b]52;c;eA\x07\n--- attempt 9"))
    assert all(char.isprintable() for char in text.replace("\n", "")) and "\n---" not in text


def test_what_a_log_put_into_the_journal_cannot_move_the_cursor(bloom: Made) -> None:
    bloom.running()
    bloom.event("decision", row="launch", why="evil \x1b[2J\x07 text")
    assert "\x1b" not in told(bloom, job()) and "evil \\x1b[2J" in told(bloom, job())


def test_the_slurm_of_a_run_is_shown_and_what_of_its_words_could_not_be_read(bloom: Made) -> None:
    bloom.event("slurm", version="26.05.5", known=True)
    assert "slurm      26.05.5\n" in told(bloom)
    bloom.event("slurm", version="31.11.0", known=False)
    bloom.event("unknown_words", job="12", said="DUE TO \x1b[2JBOREDOM")

    said = told(bloom)

    assert "slurm      31.11.0, an unknown release" in said
    assert "ended something of job 12 with a message that this safelaunch does not know: 'DUE TO" in said
    assert "\x1b" not in said and "BOREDOM" in said


def test_a_folder_on_a_nodes_disk_that_somebody_else_has_taken_is_shown(bloom: Made) -> None:
    bloom.running()
    bloom.event("local_folder_taken", node="n0", path="/tmp/safelaunch-1", owner="mallory")
    assert "/tmp/safelaunch-1 on n0 belongs to mallory, not to you" in told(bloom, job())


def test_problems_of_the_journal_are_shown(bloom: Made) -> None:
    bloom.running()
    with (bloom.dir / "journal" / "000001-n0-1.jsonl").open("ab") as file:
        file.write(b"garbage\n{}")
    assert "cannot be read: 000001-n0-1.jsonl:3: not a journal line" in told(bloom, job())


# --- the command line -----------------------------------------------------------------------------------------------


def test_the_newest_run_in_this_folder_is_the_default(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bloom.submitted()
    squeue(tmp_path, "12|PENDING|root|bloom.1a2b3c4d|Resources|")
    assert run(["status"]) == 0
    out = capsys.readouterr().out
    assert f"bloom (1a2b3c4d) in {bloom.dir}" in out and "waiting to be scheduled (Resources: " in out
    assert "\x1b" not in out


def test_jobs_of_another_name_do_not_count(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bloom.submitted()
    squeue(tmp_path, "12|PENDING|root|bloom.99999999|Resources|")
    assert run(["status", str(bloom.dir), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "unknown"


@pytest.mark.parametrize("script", [
    "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1", "echo 'what is this'", "exit 127",
], ids=["slurmctld is down", "text of another form", "not there"])
def test_slurm_without_an_answer_is_said_and_not_fatal(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str], script: str
) -> None:
    bloom.running()
    fake_command(tmp_path / "bin", "squeue", script)
    assert run(["status"]) == 0
    out = capsys.readouterr().out
    assert "state      running" in out and "slurm      no clear answer: " in out


def test_a_squeue_that_hangs_is_given_up(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bloom.running()
    fake_command(tmp_path / "bin", "squeue", "exec sleep 600")
    monkeypatch.setattr(runs, "SQUEUE_DEADLINE_S", 0.3)
    begun_s = time.monotonic()
    assert run(["status"]) == 0
    assert time.monotonic() - begun_s < 300
    assert "squeue did not answer within" in capsys.readouterr().out


def test_json_has_the_keys_that_the_documentation_names(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    bloom.running()
    bloom.log(1, b"step 5 loss 0.5\n")
    assert run(["status", str(bloom.dir), "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    documented = DOCS.read_text().split("### The object of `status RUN --json`")[1].split("\n##")[0]
    assert seen["v"] == 1
    assert [key for key in seen if f"`{key}`" not in documented] == []


def test_an_unknown_run_is_a_usage_error_that_names_the_known_ones(
    bloom: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    from safelaunch.run.io import registry

    registry.register(bloom.dir, "bloom", "1a2b3c4d", "12")
    assert run(["status", "gpt"]) == 2
    err = capsys.readouterr().err
    assert "no run is known as 'gpt'" in err and f"bloom ({bloom.dir})" in err


def test_an_ambiguous_name_lists_its_candidates(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from safelaunch.run.io import registry

    other = make_run(tmp_path / "elsewhere" / "bloom", run_id="5e6f7a8b")
    for made in (bloom, other):
        registry.register(made.dir, "bloom", made.run.plan.run_id, "12")
    assert run(["status", "bloom"]) == 2
    err = capsys.readouterr().err
    assert str(bloom.dir) in err and str(other.dir) in err and "by its path" in err


@pytest.mark.parametrize(("text", "said"), [
    ("./nothing", "no such folder"), ("./runs", "holds no run"), ("nothing", "no run is known"),
])
def test_a_path_without_a_run_is_said(bloom: Made, capsys: pytest.CaptureFixture[str], text: str, said: str) -> None:
    assert run(["status", text]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_without_runs_is_said(
    bloom: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert run(["status"]) == 2
    assert "there is no run in this folder" in capsys.readouterr().err


def test_a_run_of_another_person_is_found_below_this_folder_by_name_and_job(
    bloom: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    bloom.submitted()
    bloom.event("submitted", job="13", successor_of="12")
    for text in ("bloom", "13", "blo"):
        assert run(["status", text]) == 0
        assert str(bloom.dir) in capsys.readouterr().out


def test_watch_in_a_pipe_ends_with_the_run(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    bloom.running()
    bloom.completed()
    assert run(["status", "--watch"]) == 0
    assert "state      completed" in capsys.readouterr().out


def test_a_local_run_whose_process_is_gone_is_unknown(
    tmp_path: Path, bloom: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    import socket

    made = make_run(tmp_path / "local", cluster="local")
    made.event("submitted", gen=0, host=socket.gethostname().split(".")[0], job="999999999")
    assert run(["status", str(made.dir), "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert (seen["state"], seen["sentence"]) == (
        "unknown",
        "this machine no longer knows job 999999999, and the journal has no end: no job goes on with the run")


def test_ten_thousand_events_take_less_than_a_second(bloom: Made) -> None:
    bloom.running()
    for number in range(10_000):
        bloom.event("progress", attempt=1, step=number)
    assert overview(bloom.run, SchedulerAnswer((job(),)), bloom.now).to_json()["step"] == 9_999
    assert at_rest_s(lambda: overview(bloom.run, SchedulerAnswer((job(),)), bloom.now), 1.0) < 1.0


@pytest.mark.root
def test_a_frozen_folder_is_said_and_hangs_nobody(
    fuse_mount: FuseMount, bloom: Made, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_run(fuse_mount.path / "bloom")
    made.running()
    monkeypatch.setattr(runs, "FOLDER_DEADLINE_S", 0.5)
    fuse_mount.stop()
    try:
        begun_s = time.monotonic()
        codes = [run([verb, str(made.dir)]) for verb in ("status", "stop", "logs", "events")]
        assert time.monotonic() - begun_s < MAX_FROZEN_S
    finally:
        fuse_mount.cont()
    assert codes == [2, 2, 2, 2]
    assert capsys.readouterr().err.count("does not answer for 0 s: its filesystem is frozen or slow") == 4


# --- on a real Slurm ------------------------------------------------------------------------------------------------


def test_a_real_slurm_gives_the_reason_of_a_pending_job_and_its_loss_is_unknown(
    sandbox: Sandbox, submit: Callable[[Sandbox], Submit]
) -> None:
    drill = submit(sandbox)("--steps 20", overrides=("slurm.begin=now+1hour",), wait_started=False)

    pending = drill.as_user("status", drill.job)
    sandbox.run(["scancel", drill.job])
    drill.wait_for(lambda: not drill.jobs(), 60, "the job stayed")
    gone = json.loads(drill.as_user("status", "--json", str(drill.run_dir)).stdout)

    assert f"job {drill.job} is waiting to be scheduled (BeginTime: " in pending.stdout, pending.stderr
    assert (gone["state"], gone["slurm"]["jobs"], gone["slurm"]["trouble"]) == ("unknown", [], "")


def test_a_real_run_is_seen_running_with_its_step_and_its_successor(
    sandbox: Sandbox, submit: Callable[[Sandbox], Submit]
) -> None:
    drill = submit(sandbox)("--steps 4000 --step-time 0.05")
    drill.wait_for(lambda: list((drill.folder / "ckpt").glob("step_*.pt")), 60, "no checkpoint was written")
    drill.wait_event("submitted", 2)

    seen = json.loads(drill.as_user("status", drill.job, "--json").stdout)
    (line,) = json.loads(drill.as_user("status", "--json").stdout)["runs"]

    assert (seen["state"], seen["job"]["id"], seen["attempts"]) == ("running", drill.job, 1)
    assert 0 < seen["job"]["ends_t"] - seen["now_t"] <= 30 * 60 + 60, seen["job"]
    assert seen["checkpoint"]["step"] >= 5 and seen["checkpoint"]["age_s"] < 120, seen["checkpoint"]
    assert (line["run_dir"], line["state"], line["job"]) == (str(drill.run_dir), "running", drill.job)
    assert line["job_ends_t"] and line["step"] >= 3
    assert seen["step"] >= 3 and isinstance(seen["loss"], float)
    jobs = {job["id"]: job["state"] for job in seen["slurm"]["jobs"]}
    assert jobs == {drill.job: "RUNNING", seen["successor"]: "PENDING"}
    drill.as_user("stop", "--now", str(drill.run_dir))
    drill.wait_end()


def test_a_run_without_a_step_for_longer_than_ever_is_silent_and_programs_still_see_it_run(bloom: Made) -> None:
    bloom.submitted(ago_s=300.0)
    bloom.started(ago_s=290.0)
    bloom.attempt(ago_s=280.0, resume_step=None)
    bloom.log(1, b"".join(b"step %d/400 loss 0.5 step_time: 0.25\n" % step for step in range(80, 90)))
    bloom.pulse(age_s=5, attempt=1, step=89, step_t=bloom.now - 120, late_t=bloom.now - 100, phase="step")
    page = overview(bloom.run, SchedulerAnswer((job(),)), bloom.now)
    seen = page.to_json()
    assert (seen["state"], seen["silence"]["step"], seen["eta_t"]) == ("running", 89, None)
    text = plain(page)
    assert "state      silent, since" in text and "the last step, 89, was 2 min ago; usually one takes 250 ms" in text
    assert f"next       safelaunch stacks {bloom.dir}" in text and "ETA" not in text
    assert abs(seen["time"]["hang"] - 120) < 1, "its silence is no useful time, long before a hang check"
    bloom.log(1, b"step 90/400 loss 0.5 step_time: 0.25\n")
    assert "state      running" in told(bloom, job()), "a newer step than the pulse knows"


def test_a_log_without_a_step_that_is_read_is_said_with_its_line(bloom: Made) -> None:
    bloom.running()
    bloom.log(1, b"".join(b"[n0:0]:thing %d, loss 0.%d\n" % (number, number) for number in range(20)))
    word = SchedulerAnswer((job(),))
    assert overview(bloom.run, word, bloom.now).to_json()["unread"] is None, "20 lines are a start"
    bloom.event("steps_unread", attempt=1, lines=20, line="thing 19, loss 0.19", pattern="auto")
    page = overview(bloom.run, word, bloom.now)
    seen = page.to_json()
    assert seen["unread"] == {"line": "thing 19, loss 0.19", "pattern": "auto"}
    said = plain(page)
    assert "none of the log's lines names one; last line: 'thing 19, loss 0.19'" in said
    assert "safelaunch progress LOG --pattern" in said
    bloom.log(1, b"[n0:0]:step 7 loss 0.5\n")
    assert overview(bloom.run, word, bloom.now).to_json()["unread"] is None


def test_a_hundred_lines_without_a_step_need_no_supervisor_to_be_said(bloom: Made) -> None:
    bloom.running()
    bloom.log(1, b"".join(b"[n0:0]:thing %d, loss 0.%d token=abcdef0123456789abcdef\n" % (n, n) for n in range(100)))
    seen = overview(bloom.run, SchedulerAnswer((job(),)), bloom.now).to_json()
    assert seen["unread"]["line"].startswith("[n0:0]:thing 99, loss 0.99") and "0123456789" not in str(seen["unread"])


def test_an_epochs_fraction_is_shown_where_no_step_is_named(bloom: Made) -> None:
    bloom.running()
    bloom.log(1, b"{'loss': 0.5, 'grad_norm': 1.1, 'learning_rate': 1e-05, 'epoch': 0.12}\n" * 200)
    page = overview(bloom.run, SchedulerAnswer((job(),)), bloom.now)
    seen = page.to_json()
    assert (seen["place"], seen["unread"]) == ("epoch 0.12", None)
    assert "epoch 0.12: the log names no step" in plain(page)
