"""safelaunch policy: the table as it is for a config or a run, and as it would have done in runs that have been."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from safelaunch.adapters import registry
from safelaunch.cli import run
from safelaunch.core import decide, policy
from tests.handmade import NODES, YAML, Made, make_run
from tests.localruns import SubmitLocal

TRAIN = """\
command: python train.py
restart:
  max_restarts: 5
  policy:
    hang: restart 3
"""


@pytest.fixture(autouse=True)
def _a_home_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "site.yaml").write_text("restart: {policy: {hub_auth: restart 9}}\n")
    monkeypatch.setenv("SAFELAUNCH_SITE_CONFIG", str(tmp_path / "site.yaml"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.yaml").write_text(TRAIN)


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run(["policy", "--json", *words]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def rows(answer: dict[str, Any]) -> dict[str, tuple[str, int | None, str | None]]:
    return {row["category"]: (row["then"], row["budget"], row["place"]) for row in answer["policy"]}


# --- the table ------------------------------------------------------------------------------------------------------


def test_without_an_argument_it_shows_the_defaults_under_the_sites_word(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    answer = asked(capsys)
    assert rows(answer)["hub_auth"] == ("restart", 9, f"{tmp_path}/site.yaml:1")
    others = {category: row for category, row in rows(answer).items() if category != "hub_auth"}
    assert others == {category: (row.then, row.budget, None) for category, row in policy.DEFAULTS.items()
                      if category != "hub_auth"}


def test_a_row_says_in_which_line_of_train_yaml_it_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    answer = asked(capsys, "train.yaml", "restart.policy.network=stop")
    assert rows(answer)["hang"] == ("restart", 3, "train.yaml:5")
    assert rows(answer)["network"] == ("stop", None, "command line")
    assert rows(answer)["unknown"] == ("exclude", None, None)


def test_budgets_are_shown_with_their_places(capsys: pytest.CaptureFixture[str]) -> None:
    budgets = {row["key"]: (row["value"], row["place"]) for row in asked(capsys, "train.yaml")["budgets"]}
    assert budgets["restart.max_restarts"] == (5, "train.yaml:3")
    assert budgets["restart.backoff"] == (60.0, None)
    assert {"resume.keep_trying", "suspects.max_excluded"} <= set(budgets)


def test_the_rows_between_attempts_stand_in_the_order_of_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert [row["row"] for row in asked(capsys)["order"]] == [row.__name__.strip("_") for row in decide.BETWEEN]


def test_people_see_what_the_default_of_a_row_of_theirs_would_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "train.yaml"]) == 0
    text = capsys.readouterr().out
    assert "hang              restart    3       train.yaml:5 says so; the default is exclude 6: " in text
    assert "suspects.forget_after          7d " in text and "restart.backoff                1m " in text


def test_a_runs_own_policy_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    made = make_run(tmp_path / "bloom", YAML + "restart: {policy: {hang: stop}, max_restarts: 2}\n")
    answer = asked(capsys, str(made.dir), "restart.policy.data=stop")
    assert rows(answer)["hang"] == ("stop", None, "train.yaml")   # this run.json has no origins
    assert rows(answer)["data"] == ("stop", None, "command line")
    assert answer["budgets"][0]["value"] == 2


@pytest.mark.parametrize(("words", "said"), [
    (("nope.yaml",), "nope.yaml: no such file"),
    (("restart.policy.netwrk=stop",), "restart.policy: netwrk: no such category"),
    (("train.yaml", "bloom"), "one FILE or RUN at a time"),
    (("--all",), "--all goes with --replay"),
    (("--replay", "bloom", "slurm.nodes=4"), "slurm.nodes has no part in what follows a failure"),
], ids=["no file", "no category", "two things", "all", "no part"])
def test_what_makes_no_sense_is_refused(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "bloom").running()
    words = tuple(str(tmp_path / "bloom") if word == "bloom" else word for word in words)
    assert run(["policy", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_narrow_terminal_gets_narrow_lines(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("")   # its path is one long word
    code = f"import sys; sys.path[:0] = {sys.path!r}; from safelaunch.cli import main; main(['policy', 'train.yaml'])"
    shown = subprocess.run(
        ["script", "-qec", f"stty cols 80; {sys.executable} -c \"{code}\"", "/dev/null"], cwd=tmp_path, text=True,
        capture_output=True, timeout=60, stdin=subprocess.DEVNULL).stdout
    lines = shown.replace("\r", "").splitlines()
    assert len(lines) > 40 and max(map(len, lines)) <= 80


# --- against history ------------------------------------------------------------------------------------------------


@pytest.fixture
def bloom(tmp_path: Path) -> Made:
    """A run of 4 nodes with 8 GPUs each whose attempts last an hour each; `attempt` and `decided` write its journal."""
    made = make_run(tmp_path / "bloom")
    made.submitted()
    made.started()
    return made


def attempt(made: Made, number: int, category: str, *, ago_h: float, how: str = "failed", step: int | None = None,
            checkpoint: int | None = None, confidence: float = 0.9) -> None:
    """One attempt of an hour that ended `ago_h` hours ago, as a leader writes it down."""
    end_s = ago_h * 3600
    made.event("attempt_started", ago_s=end_s + 3600, attempt=number, job="12", nodes=NODES, why="first attempt")
    if step is not None:
        made.event("progress", ago_s=end_s, attempt=number, step=step)
    if how != "completed":
        made.event("verdict", ago_s=end_s, attempt=number, category=category, summary="boom", confidence=confidence)
    made.event("attempt_ended", ago_s=end_s, attempt=number, how=how, exit_code=1)
    made.event("fenced", ago_s=end_s, attempt=number)
    if checkpoint is not None:
        made.event("checkpoint", ago_s=end_s, attempt=number, step=checkpoint, path="/c")


def launch(made: Made, number: int) -> None:
    made.event("decision", row="launch", action="launch", why="going on", attempt=number)


def completed(made: Made) -> None:
    made.event("completed", exit_code=0, why="done")
    made.event("decision", row="completed", why="the run has ended: completed")


def gave_up(made: Made, why: str = "boom") -> None:
    made.event("gave_up", exit_code=10, why=why)
    made.event("decision", row="give_up", why=f"the run has ended: gave_up: {why}")


def replayed(capsys: pytest.CaptureFixture[str], made: Made, *words: str) -> dict[str, Any]:
    return asked(capsys, "--replay", str(made.dir), *words)


def kinds(answer: dict[str, Any]) -> list[tuple[str, str, bool, bool]]:
    """then, now, differs, made of each attempt of the first run."""
    return [(one["then"]["kind"], one["now"]["kind"], one["differs"], one["made"])
            for one in answer["runs"][0]["attempts"]]


@pytest.fixture
def flapping(bloom: Made) -> Made:
    """Two failures of the network, each after a checkpoint, and the end."""
    attempt(bloom, 1, "network", ago_h=5, step=100, checkpoint=100)
    launch(bloom, 2)
    attempt(bloom, 2, "network", ago_h=3, step=200, checkpoint=200)
    launch(bloom, 3)
    attempt(bloom, 3, "", ago_h=1, how="completed", step=300)
    completed(bloom)
    return bloom


def test_the_runs_own_policy_decides_as_it_did(flapping: Made, capsys: pytest.CaptureFixture[str]) -> None:
    answer = replayed(capsys, flapping)
    assert kinds(answer) == [("restart", "restart", False, True), ("restart", "restart", False, True),
                             ("done", "done", False, True)]
    assert answer["summary"] == {"runs": 1, "attempts": 3, "differing": 0, "restarts_saved": 0, "restarts_added": 0,
                                 "node_hours": 0, "gpu_hours": 0}


def test_a_policy_that_stops_saves_attempts_and_says_what_it_would_have_missed(
    flapping: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = replayed(capsys, flapping, "restart.policy.network=stop")
    assert kinds(answer) == [("restart", "stop", True, True), ("restart", "stop", False, False),
                             ("done", "done", False, False)]
    assert answer["runs"][0]["harm"] == "the run completed afterwards"
    summary = answer["summary"]
    assert (summary["differing"], summary["restarts_saved"]) == (1, 2)
    assert summary["gpu_hours"] == pytest.approx(2 * 4 * 8, abs=0.1)


def test_a_longer_budget_adds_an_attempt_of_unknown_cost(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    attempt(bloom, 1, "user_code", ago_h=2, step=10)
    launch(bloom, 2)
    attempt(bloom, 2, "user_code", ago_h=1, step=10)
    gave_up(bloom)
    assert kinds(replayed(capsys, bloom)) == [("restart", "restart", False, True), ("stop", "stop", False, True)]
    answer = replayed(capsys, bloom, "restart.policy.user_code=restart 5")
    assert kinds(answer)[1] == ("stop", "restart", True, True)
    assert (answer["summary"]["restarts_added"], answer["summary"]["restarts_saved"]) == (1, 0)
    assert answer["runs"][0]["attempts"][1]["now"]["pause_s"] > 50   # the second failure in a row waits


def test_a_budget_that_is_shorter_stops_with_its_reason(flapping: Made, capsys: pytest.CaptureFixture[str]) -> None:
    answer = replayed(capsys, flapping, "restart.max_restarts=1")
    now = answer["runs"][0]["attempts"][1]["now"]
    assert (now["kind"], now["row"]) == ("stop", "spent") and "all 1 restarts are used" in now["why"]


def test_a_checkpoint_that_the_attempt_made_refills_the_budget_before_the_decision(
    bloom: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1, 2, 3):
        attempt(bloom, number, "data", ago_h=9 - 2 * number, step=100 * number, checkpoint=100 * number)
        launch(bloom, number + 1)
    answer = replayed(capsys, bloom, "restart.policy.data=restart 0", "restart.max_without_progress=1")
    assert [kind[1] for kind in kinds(answer)] == ["restart"] * 3


@pytest.mark.parametrize(("row", "event", "then"), [
    ("killed_by_person", "stopped", "stop"), ("job_ends", "resubmitted", "next_job"),
    ("held", "resubmitted", "next_job"), ("too_few_nodes", "resubmitted", "next_job"),
], ids=["kill switch", "job ends", "held", "too few nodes"])
def test_what_no_policy_decides_stays_as_it_was(
    bloom: Made, row: str, event: str, then: str, capsys: pytest.CaptureFixture[str]
) -> None:
    attempt(bloom, 1, "network", ago_h=1)
    if event == "stopped":
        bloom.event("stopped", exit_code=12, why="bob touched kill")
        bloom.event("decision", row=row, why="the run has ended: stopped")
    else:
        bloom.event("decision", row=row, why="handing over to the next job")
        bloom.event("resubmitted", job="13", why="handing over")
    assert kinds(replayed(capsys, bloom)) == [(then, then, False, True)]


def test_waits_on_the_way_to_a_restart_are_passed_over(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    attempt(bloom, 1, "storage", ago_h=1)
    bloom.event("decision", row="no_storage", why="waiting until …: the run's folders cannot be written")
    bloom.event("decision", row="back_off", why="waiting until …")
    launch(bloom, 2)
    assert kinds(replayed(capsys, bloom)) == [("restart", "restart", False, True)]


def test_a_preserved_site_counts_as_the_stop_that_it_is(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    attempt(bloom, 1, "user_code", ago_h=2, step=10)
    launch(bloom, 2)
    attempt(bloom, 2, "user_code", ago_h=1, step=10)
    bloom.event("preserved", until=bloom.now + 60, nodes=["n0"])
    bloom.event("decision", row="give_up", why="no step was made. The site is preserved")
    assert kinds(replayed(capsys, bloom))[1] == ("stop", "stop", False, True)


def test_what_the_journal_does_not_tell_is_no_difference(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    attempt(bloom, 1, "network", ago_h=1)
    assert kinds(replayed(capsys, bloom, "restart.policy.network=stop")) == [("unknown", "stop", False, True)]


def test_a_row_is_taken_back_by_an_empty_override(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = make_run(tmp_path / "own", YAML + "restart: {policy: {network: stop}}\n")
    made.submitted()
    made.started()
    attempt(made, 1, "network", ago_h=1)
    gave_up(made)
    answer = replayed(capsys, made, "restart.policy.network=")
    assert kinds(answer) == [("stop", "restart", True, True)]
    assert answer["runs"][0]["attempts"][0]["policy"] == "exclude 6"


def test_a_train_yaml_is_tried_on_a_run(flapping: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.yaml").write_text(TRAIN.replace("hang: restart 3", "network: stop"))
    assert replayed(capsys, flapping, "train.yaml")["summary"]["restarts_saved"] == 2


def test_all_registered_runs_are_summed_up_and_unreadable_ones_left_out(
    flapping: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = make_run(tmp_path / "broken", run_id="22222222")
    for made in (flapping, broken):
        assert registry.register(made.dir, "bloom", made.run.plan.run_id, "12")
    (broken.dir / "run.json").write_text("{")
    assert run(["policy", "--replay", "--all", "restart.policy.network=stop"]) == 0
    heard = capsys.readouterr()
    assert f"left out: {broken.dir}/run.json cannot be read" in heard.err
    last = heard.out.splitlines()[-1]
    assert last == ("3 attempts of 1 run: 1 decision differs; 2 restarts saved (they held 64.0 GPU-hours); beware of "
                    "what bloom would have missed")


def test_people_see_why_a_decision_would_have_been_another(
    flapping: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["policy", "--replay", str(flapping.dir), "restart.policy.network=stop"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == ("      1  network            90%  restart   stop        differs: stop (network: boom; the "
                        "policy says stop)")
    assert lines[3].endswith("(would not have been made)")


def test_a_run_that_really_was_is_replayed_as_it_went(submit_local: SubmitLocal) -> None:
    local = submit_local("--steps 60 --step-time 0.01 --die-at 30")
    assert local.wait_end().how == "completed"
    done = local.type("policy", "--replay", str(local.run_dir), "--json")
    assert done.returncode == 0, done.stderr
    assert kinds(json.loads(done.stdout)) == [("restart", "restart", False, True), ("done", "done", False, True)]
    done = local.type("policy", "--replay", str(local.run_dir), "restart.max_restarts=0")
    assert "differs: stop (all 0 restarts are used" in done.stdout
    assert "this policy would have prevented that" in done.stdout


def test_an_override_of_one_row_reaches_a_submitted_run(submit_local: SubmitLocal) -> None:
    local = submit_local("--steps 3 --step-time 0.01", "restart.policy.network=stop", "restart.policy.hang=restart 2")
    local.wait_end()
    config = json.loads((local.run_dir / "run.json").read_text())["config"]
    assert config["restart"]["policy"] == {"hub_auth": "restart 9", "network": "stop", "hang": "restart 2"}
