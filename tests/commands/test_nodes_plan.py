"""safelaunch nodes bench --plan: lines of results in, the next group or the culprit out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from safelaunch.commands.nodes import command
from safelaunch.errors import UsageError

PLAN = ["bench", "--plan", "n[1-8]", "--spares", "2", "--normal", "105.2", "--slow", "111"]


def told(*words: str) -> dict[str, object]:
    done = CliRunner().invoke(command, [*PLAN, "--json", *words], catch_exceptions=False, standalone_mode=False)
    found: dict[str, object] = json.loads(done.output)
    return found


def test_results_lead_from_group_to_group_to_the_culprit(tmp_path: Path) -> None:
    assert told()["leave_out"] == ["n1", "n2"]
    assert told("--result", "n[1-2]=110.8")["leave_out"] == ["n3", "n4"]
    file = tmp_path / "results"
    file.write_text("# of last night\nn[1-2]=slow\n\nn[3-4] = back\n")
    assert told("--results", str(file))["leave_out"] == ["n3"]
    found = told("--results", str(file), "--result", "n3=111.3")
    assert (found["culprit"], found["leave_out"], found["jobs"], found["most_jobs_left"]) == ("n4", [], 3, 0)


def test_people_are_told_what_to_type_next() -> None:
    said = CliRunner().invoke(command, PLAN, standalone_mode=False)
    assert "leave out of the next job: n[1-2] (8 nodes may be slow; 4 jobs at most are needed" in said.output
    assert "--result 'n[1-2]=SECONDS'" in said.output
    words = [*PLAN, "--result", "n[1-2]=back", "--result", "n1=slow"]
    found = CliRunner().invoke(command, words, standalone_mode=False)
    assert 'safelaunch nodes suspect n2 --why "slow: found in 2 jobs"' in found.output


@pytest.mark.parametrize(("words", "complaint"), [
    ([*PLAN, "--result", "n9=105"], "n9 is not one of the job's nodes"),
    ([*PLAN, "--result", "n1=soon"], "not a result"), ([*PLAN, "--result", "n1"], "not a result"),
    ([*PLAN, "--result", "n1=nan"], "not a time of a step"), ([*PLAN, "--result", "n1=-3"], "not a time of a step"),
    ([*PLAN, "--results", "/nowhere/at/all"], "cannot be read"),
    (["bench", "--plan", "n[1-8]", "--spares", "2", "--normal", "105"], "--plan needs --slow"),
    (["bench", "--plan", "n[1-8]", "--spares", "2", "--normal", "105", "--slow", "100"], "--slow is not more"),
    (["bench", "--plan", "--spares", "2", "--normal", "105", "--slow", "111"], "needs the nodes of the job"),
    (["bench", "--plan", "n1", "--spares", "2", "--normal", "105", "--slow", "111"], "needs the nodes of the job"),
    (["bench", "n[1-8]", "--spares", "2"], "are for --plan"),
])
def test_what_makes_no_sense_is_refused(words: list[str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        CliRunner().invoke(command, words, catch_exceptions=False, standalone_mode=False)
