"""`safelaunch report --all`: a month of several runs on one page."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from safelaunch import cli
from safelaunch.run.io import registry
from safelaunch.verbs.report import monthpage
from tests.browser import dump_dom, find_browser
from tests.handmade import Made, fake_command, make_run

DAY_S = 86400.0
HOSTILE = "</td><script>document.title='owned'</script>\x1b]52;c;aGk=\x07 hf_abcdefghij0123456789"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    fake_command(tmp_path / "bin", "squeue", "exit 0")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def a_run(home: Path, name: str, run_id: str, *, days_ago: float, nodes: list[str],
          failures: list[tuple[str, str | None]], owner_lists_it: bool = True) -> Made:
    """A run that has queued for an hour, and makes a step a minute; each failure comes after a day."""
    made = make_run(home / name, f"name: {name}\ncommand: python train.py\nslurm: {{nodes: {len(nodes)}}}\n", run_id)
    at_s = days_ago * DAY_S
    made.event("submitted", gen=0, host="login", job="12", ago_s=at_s + 3600)
    made.event("job_started", job="12", nodes=nodes, batch_host=nodes[0], ago_s=at_s)
    step = 0
    for number, (category, node) in enumerate([*failures, ("", None)], 1):
        made.event("attempt_started", attempt=number, job="12", nodes=nodes, resume_step=step or None, ago_s=at_s)
        for hour in range(1, 24):
            made.event("progress", attempt=number, step=step + hour * 60, ago_s=at_s - hour * 3600)
        made.event("checkpoint", attempt=number, step=step + 20 * 60, path=f"c{step}", ago_s=at_s - 20 * 3600)
        at_s -= DAY_S
        step += 20 * 60
        if not category:
            made.event("attempt_ended", attempt=number, how="completed", exit_code=0, ago_s=at_s)
            made.event("completed", exit_code=0, why=HOSTILE, ago_s=at_s)
            break
        made.event("attempt_ended", attempt=number, how="failed", exit_code=1, step=step + 180, node=node, ago_s=at_s)
        made.event("verdict", attempt=number, category=category, summary=HOSTILE, confidence=0.9, node=node,
                   suspects=[node] if node else [], follows="", ago_s=at_s)
    if owner_lists_it:
        registry.register(made.dir, name, run_id, "12")
    return made


@pytest.fixture
def month(home: Path) -> Path:
    a_run(home, "bloom", "1a2b3c4d", days_ago=12, nodes=["n0", "n1", "n2", "n3"],
          failures=[("gpu_hardware", "n3"), ("network", None), ("gpu_hardware", "n3")])
    a_run(home, "opt", "2b3c4d5e", days_ago=6, nodes=["n0", "n1"], failures=[("user_code", None)])
    a_run(home, "old", "3c4d5e6f", days_ago=90, nodes=["n9"], failures=[])
    return home


def report(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.run(["report", "--all", *words]) == 0
    return capsys.readouterr().out


def test_the_object_has_lost_hours_by_cause_and_by_node(month: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(report(capsys, "--json"))
    assert (found["v"], found["runs"], found["nodes_used"], found["notes"]) == (1, 2, 4, [])
    causes = {one["cause"]: one for one in found["lost_by_cause"]}
    assert {name: one["failures"] for name, one in causes.items() if one["failures"]} == {
        "gpu_hardware": 2, "network": 1, "user_code": 1}
    # Each failure: an hour until its end, and the steps since the checkpoint of four hours before it.
    assert causes["gpu_hardware"]["seconds"] == pytest.approx(2 * 4 * 3600, rel=0.3)
    assert causes["gpu_hardware"]["node_seconds"] == pytest.approx(4 * causes["gpu_hardware"]["seconds"])
    node, = found["lost_by_node"]
    assert (node["node"], node["failures"], node["days"]) == ("n3", 2, pytest.approx(4.0, rel=0.01))
    assert node["rate"]["mtbf_low_days"] < node["rate"]["mtbf_days"] < node["rate"]["mtbf_high_days"]
    assert 0.05 < node["probability"] < 0.9   # two failures prove little
    assert found["node_days"] == pytest.approx(4 * 4 + 2 * 2, rel=0.01)
    assert 0.5 < found["goodput"] < found["goodput_with_nodes"] < 1
    assert found["failures_of_nodes"]["failures"] == 2 and found["failures_of_runs"]["failures"] == 4
    first = found["advice"][0]
    assert first["name"] == "bloom" and len(first["saves"]) == 3 and not first["cost_is_known"]
    assert {one["name"]: one["causes"] for one in found["table"]} == {
        "bloom": {"gpu_hardware": 2, "network": 1}, "opt": {"user_code": 1}}


def test_the_window_cuts_what_is_earlier(month: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(report(capsys, "--json", "--since", "120d"))["runs"] == 3
    late = json.loads(report(capsys, "--json", "--since", "5d"))
    assert [one["name"] for one in late["table"]] == ["opt"] and late["node_days"] == pytest.approx(2 * 1, rel=0.02)


def test_nothing_at_all_is_a_page_as_well(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(report(capsys, "--json"))["failures_of_nodes"] is None
    assert "Nothing was lost." in report(capsys, "-o", "-")


def test_a_run_that_cannot_be_read_is_said_and_the_others_are_shown(month: Path,
                                                                    capsys: pytest.CaptureFixture[str]) -> None:
    (month / "opt" / "run.json").write_text("{")
    found = json.loads(report(capsys, "--json"))
    assert found["runs"] == 1 and found["notes"] == ["1 run could not be read"]


@pytest.mark.parametrize(("days", "said"), [(0.25, "6 node-hours"), (1.234, "1.23 node-days"),
                                            (2330.4, "2,330 node-days"), (4_751_234.0, "4,750,000 node-days")])
def test_days_are_told_without_an_exponent(days: float, said: str) -> None:
    assert monthpage._days(days) == said


def test_a_page_is_inert_and_small_and_refers_to_nothing(month: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_run(month, "evil", "4d5e6f70", days_ago=3, nodes=["n0", HOSTILE[:40]], failures=[("gpu_hardware", HOSTILE[:40])])
    page = report(capsys, "-o", "-")
    assert len(page) < 1_000_000
    assert "<script" not in page and "\x1b" not in page and "hf_abcdef" not in page
    tags = re.findall(r"<[a-zA-Z][^>]*>", page)
    refers = [tag for tag in tags if re.search(r"\s(?:src|href|action|srcset|data|poster)=", tag)]
    assert refers[0] == '<link rel="icon" href="data:,">'
    assert all(re.fullmatch(r'<a href="file:///[^"]*">', tag) for tag in refers[1:]) and len(refers) == 4
    assert "url(" not in page and "@import" not in page


@pytest.mark.parametrize("words", [["bloom", "--all"], ["bloom", "--team"], ["--since", "3d"],
                                   ["--all", "--since", "soon"], ["--all", "--json", "-o", "x"]])
def test_what_makes_no_sense_is_refused(month: Path, words: list[str]) -> None:
    assert cli.run(["report", *words]) == 2


def test_the_teams_page_has_runs_of_others(month: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = a_run(month, "theirs", "5e6f7081", days_ago=4, nodes=["n5"], failures=[], owner_lists_it=False)
    registry.remember(theirs.dir, "theirs", "5e6f7081", "12")
    tables = [json.loads(report(capsys, "--json", *words))["table"] for words in ([], ["--team"])]
    assert [{one["name"] for one in table} for table in tables] == [{"bloom", "opt"}, {"bloom", "opt", "theirs"}]


def test_a_browser_shows_every_part(month: Path, tmp_path: Path) -> None:
    browser = find_browser()
    if browser is None:
        pytest.skip("there is no Chromium; tests/verbs/test_report.py requires it where it must be")
    assert cli.run(["report", "--all", "-o", "page.html"]) == 0
    done = dump_dom(browser, tmp_path / "page.html", tmp_path)
    assert done.returncode == 0, done.stderr
    for part in ("goodput", "causes", "nodes", "mtbf", "advice", "runs"):
        assert f'<section id="{part}">' in done.stdout
    assert "<title>All runs · safelaunch report</title>" in done.stdout and "CONSOLE" not in done.stderr
