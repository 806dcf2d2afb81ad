"""safelaunch as a library: the verbs' own functions with typed values; it prints nothing and imports little."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import safelaunch
import safelaunch.plugins
from safelaunch.api import LogLine, StopAnswer
from safelaunch.base.model import Event
from safelaunch.cli import run as cli
from safelaunch.config.resolve import resolve
from safelaunch.errors import ConfigError, UsageError, WaitTimedOut
from safelaunch.run.fold.state import Ended
from safelaunch.status.values import RunStatus, RunSummary, RunTable
from safelaunch.verbs.common import confirmation
from safelaunch.verbs.control.holding import HoldAnswer
from safelaunch.verbs.logs import logfollow
from safelaunch.verbs.logs.logparts import split_lines
from safelaunch.why.verdict import Verdict
from tests.handmade import Made, fake_command, make_run, make_running
from tests.localruns import write_yaml

ROOT = Path(__file__).parent.parent
DEPENDENCIES = ("yaml", "click", "rich", "psutil", "filelock", "tenacity", "ahocorasick_rs")


@pytest.fixture
def bloom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_deadlines: None) -> Made:
    return make_running(tmp_path, monkeypatch)


def python(code: str, folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=folder, env=env, text=True, capture_output=True,
                          timeout=300, check=False)


def test_importing_it_imports_no_dependency_and_none_of_its_own_layers(tmp_path: Path) -> None:
    code = ("import sys; before = set(sys.modules); import safelaunch; dir(safelaunch)\n"
            "print(sorted(name for name in set(sys.modules) - before if name.partition('.')[0] == 'safelaunch'))\n"
            f"print([name for name in {DEPENDENCIES} if name in sys.modules])")
    done = python(code, tmp_path, dict(os.environ))
    assert done.stdout.splitlines() == [
        "['safelaunch', 'safelaunch.safelaunch_progress', 'safelaunch.version']", "[]"], done.stderr


def test_all_that_is_promised_is_there_and_nothing_else_is_made_up() -> None:
    assert all(getattr(safelaunch, name) is not None for name in safelaunch.__all__)
    assert set(safelaunch.__all__) <= set(dir(safelaunch))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = safelaunch.nothing


def test_a_run_is_watched_and_steered_without_click_and_without_a_word_printed(bloom: Made) -> None:
    bloom.log(1, b"step 1 loss 0.5\n")
    code = ("import sys, safelaunch\nrun = safelaunch.load('bloom')\n"
            "run.status(), list(run.events()), list(run.logs()), run.hold('x'), run.resume(), safelaunch.runs()\n"
            "assert not {'click', 'rich', 'yaml'} & set(sys.modules)")
    done = python(code, bloom.dir.parent, dict(os.environ))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_status_holds_what_the_verb_says(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    bloom.log(1, b"step 12 loss nan\n")
    status = safelaunch.load(bloom.dir).status()
    assert cli(["status", str(bloom.dir), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (status.name, status.state, status.step, status.run_dir) == ("bloom", "unknown", 12, str(bloom.dir))
    assert status.loss is not None and status.loss != status.loss   # a number that is none
    assert status.attempt is not None and status.attempt.nodes == ("n0", "n1", "n2", "n3")
    assert status.job is not None and (status.job.id, status.ended, status.checkpoint) == ("12", None, None)
    assert {**status.json, "now_t": 0, "pulse": 0, "node_hours": 0, "gpu_hours": 0, "time": 0} == {
        **said, "now_t": 0, "pulse": 0, "node_hours": 0, "gpu_hours": 0, "time": 0}


def test_the_status_of_an_ended_run_has_its_end(bloom: Made) -> None:
    bloom.completed()
    status = safelaunch.load("bloom").status()
    assert isinstance(status.ended, Ended) and (status.ended.how, status.ended.exit_code) == ("completed", 0)


def test_another_thread_gets_the_same_status(tmp_path: Path, bloom: Made) -> None:
    made = make_run(tmp_path / "own", "name: own\ncommand: x\nprogress: {step: 'batch=(\\d+)'}\n", "2b3c4d5e")
    made.running()
    made.log(1, b"batch=7\n")
    found: list[int | None] = []
    asker = threading.Thread(target=lambda: found.append(safelaunch.load(made.dir).status().step))
    asker.start()
    asker.join(60)
    assert found == [safelaunch.load(made.dir).status().step] == [7]


def test_the_table_holds_the_runs_and_what_could_not_be_asked(bloom: Made) -> None:
    from safelaunch.run.io import registry

    registry.register(bloom.dir, "bloom", "1a2b3c4d", "12", "")
    table = safelaunch.runs()
    assert [(one.name, one.job, one.attempts) for one in table] == [("bloom", "12", 1)]
    assert (len(table), table.silent, table.closed) == (1, (), 0)


def test_events_are_told_once_and_every_line_with_all(bloom: Made) -> None:
    bloom.event("progress", attempt=1, step=3)
    bloom.completed()
    run = safelaunch.load("bloom")
    assert [event.event for event in run.events()][-1] == "completed"
    assert "progress" in [event.event for event in run.events(all=True)]
    assert list(run.events(follow=True)) == list(run.events())
    assert safelaunch.describe(next(run.events())) == "job 12 is submitted"


def test_what_cannot_be_read_of_the_journal_goes_to_say(bloom: Made) -> None:
    (bloom.dir / "journal" / "000009-n9-1.jsonl").write_bytes(b"\xff{garbled\n")
    said: list[str] = []
    assert list(safelaunch.load("bloom").events(say=said.append))
    assert len(said) == 1 and "000009-n9-1.jsonl" in said[0]


def test_logs_are_lines_of_their_attempts(bloom: Made) -> None:
    bloom.log(1, b"one\ntw\xffo\r 50%\nlast")
    bloom.failed()
    bloom.attempt(2)
    bloom.log(2, b"[n0:0]:three\n[n1:1]:four\n")
    run = safelaunch.load("bloom")
    assert list(run.logs(attempt=1)) == [LogLine(1, "one"), LogLine(1, "tw\ufffdo\r 50%"), LogLine(1, "last")]
    assert [line.text for line in run.logs(lines=1)] == ["[n1:1]:four"]
    assert list(run.logs(grep="three")) == list(run.logs(rank=0)) == [LogLine(2, "[n0:0]:three")]
    with pytest.raises(UsageError, match="not a regular expression"):
        list(run.logs(grep="("))


def test_logs_of_a_run_that_has_just_ended_hold_the_lines_that_are_copied_after_its_end(
    bloom: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logfollow, "LAG_S", 60.0)
    bloom.completed()
    late = threading.Timer(0.3, bloom.log, (1, b"one\n"))
    late.start()
    assert list(safelaunch.load("bloom").logs()) == [LogLine(1, "one")]


def test_logs_are_taken_since_a_time_and_folded_as_by_the_verb(bloom: Made) -> None:
    bloom.event("attempt_started", attempt=2, job="12", nodes=["n0", "n1"], ago_s=60)
    at = [time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(bloom.now - ago_s)) for ago_s in (30, 10)]
    for when, word in zip(at, ("early", "ready"), strict=True):
        bloom.log(2, "".join(f"[n{rank}:0]:{when} {word}\n" for rank in range(2)).encode())
    run = safelaunch.load("bloom")
    assert [line.text for line in run.logs(since=bloom.now - 20)] == [
        f"[n{rank}:0]:{at[1]} ready" for rank in range(2)]
    assert [line.text for line in run.logs(since="1h", fold=True)] == [
        f"[n[0-1]: 2 ranks] {at[0]} early", f"[n[0-1]: 2 ranks] {at[1]} ready"]
    with pytest.raises(UsageError, match="expected a span"):
        list(run.logs(since="soon"))


def test_a_report_is_text_and_a_file(bloom: Made) -> None:
    page = safelaunch.load("bloom").report(bloom.dir.parent / "page.html")
    assert page.startswith("<!doctype html>") and (bloom.dir.parent / "page.html").read_text() == page
    with pytest.raises(UsageError, match="cannot be written"):
        safelaunch.load("bloom").report("nowhere/page.html")


def public_signatures() -> str:
    """All that docs/python.md and docs/plugins.md promise: functions, methods, and the fields of values."""
    found = []
    for module in (safelaunch, safelaunch.plugins):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value):
                found.append(f"{name}{inspect.signature(value)}" if dataclasses.is_dataclass(value) else name)
                found += [f"{name}.{at}{inspect.signature(one) if inspect.isfunction(one) else ''}"
                          for at, one in vars(value).items() if not at.startswith("_") and (
                              inspect.isfunction(one) or isinstance(one, property))]
            elif callable(value):
                found.append(f"{name}{inspect.signature(value)}")
    for value in (LogLine, StopAnswer, RunStatus, RunSummary, RunTable, HoldAnswer, Verdict, Event, Ended):
        found.append(f"{value.__name__}({', '.join(inspect.signature(value).parameters)})")
    text = re.sub(r"<function (\w+) at 0x[0-9a-f]+>", r"\1", "\n".join(found))
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", text) + "\n"


def test_no_public_signature_changes_without_a_word_in_the_changelog() -> None:
    now = public_signatures()
    page, changelog = ROOT / "docs" / "python.md", (ROOT / "CHANGELOG.md").read_text()
    head, block, rest = re.split(r"(?s)(?<=```text\n)(.*?)(?=```\n)", page.read_text(), maxsplit=1)
    if os.environ.get("SAFELAUNCH_GOLDEN") == "write":
        page.write_text(head + now + rest)
    assert now == block, "SAFELAUNCH_GOLDEN=write pytest tests/test_api.py, and say in the changelog what has changed"
    digest = hashlib.sha256(now.encode()).hexdigest()[:8]
    assert f"`{digest}`" in changelog, f"say in the changelog what has changed, and name there the list: {digest}"


def test_followed_logs_go_on_until_the_run_has_ended(bloom: Made) -> None:
    bloom.log(1, b"one\n")
    said: list[str] = []
    lines = safelaunch.load("bloom").logs(follow=True, say=said.append)
    assert next(lines) == LogLine(1, "one")
    bloom.log(1, b"two\n")
    assert next(lines) == LogLine(1, "two")
    bloom.completed()
    assert (list(lines), len(said)) == ([], 1) and "exit code 0" in said[0]


def test_a_line_without_an_end_takes_no_more_memory_than_a_piece_of_it(bloom: Made) -> None:
    bloom.log(1, b"x" * (5 << 20))
    run = safelaunch.load("bloom")
    pieces = list(run.logs())
    assert max(len(piece.text) for piece in pieces) <= 1 << 20 and sum(len(piece.text) for piece in pieces) == 5 << 20
    assert list(split_lines([])) == []


def test_why_is_the_verdict_of_the_verb(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    bloom.log(1, b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    bloom.failed()
    verdict = safelaunch.load("bloom").why()
    assert cli(["why", str(bloom.dir), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["verdict"]
    assert (verdict.category, verdict.summary) == (said["category"], said["summary"])
    with pytest.raises(UsageError, match="has no attempt 7"):
        safelaunch.load("bloom").why(attempt=7)


def test_waiting_returns_the_end_or_times_out(bloom: Made) -> None:
    run = safelaunch.load("bloom")
    with pytest.raises(TimeoutError, match="bloom has not ended within 0 s; it is running") as raised:
        run.wait(timeout=0.1)
    assert isinstance(raised.value, WaitTimedOut) and raised.value.exit_code == 124
    bloom.event("stopped", exit_code=12, why="asked")
    assert (run.wait().how, run.wait().exit_code) == ("stopped", 12)


def test_a_hold_is_taken_and_given_back(bloom: Made) -> None:
    run = safelaunch.load("bloom")
    held = run.hold("the dataset moves")
    assert held.held and held.request is not None and held.exit_code == 0
    assert (bloom.dir / "control" / "hold").read_text() == "the dataset moves\n"
    assert not run.resume().held and not (bloom.dir / "control" / "hold").exists()
    bloom.completed()
    with pytest.raises(UsageError, match="it cannot go on"):
        run.resume()


def test_a_stop_touches_the_switch_and_says_whether_it_was_heard(bloom: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirmation, "CONFIRM_S", 0.0)   # no leader lives here
    run = safelaunch.load("bloom")
    fake_command(bloom.dir.parent / "bin", "squeue", "echo '12|RUNNING|nobody|bloom.1a2b3c4d|None|n0'")
    answer = run.stop()
    assert not answer.is_done and answer.exit_code == 124 and "not confirmed" in answer.sentences[-1]
    assert (bloom.dir / "control" / "kill").exists()
    bloom.event("kill_switch", name="kill", who="me", touched_t=0)
    assert run.stop().is_done


@pytest.mark.parametrize(("asked", "says"), [
    ({"now": True, "checkpoint": True}, "exclude each other"), ({"within_s": 60.0}, "needs --checkpoint"),
    ({"checkpoint": True, "within_s": 3.0}, "at least 10 s"), ({"checkpoint": True}, "no resume.dir"),
], ids=["both", "within alone", "too soon", "no resume.dir"])
def test_a_stop_that_makes_no_sense_is_refused(bloom: Made, asked: dict[str, bool], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        safelaunch.load("bloom").stop(**asked)
    assert not list((bloom.dir / "control").iterdir())


def test_a_run_that_nobody_knows_is_the_verbs_own_error(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError) as raised:
        safelaunch.load("nothing-like-it")
    assert cli(["status", "nothing-like-it"]) == 2
    assert raised.value.message in capsys.readouterr().err


# --- submit ---------------------------------------------------------------------------------------------------------


def test_a_config_of_values_tells_its_mistakes_by_their_keys(bloom: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAFELAUNCH_SITE_CONFIG", raising=False)
    with pytest.raises(ConfigError) as raised:
        safelaunch.submit({"command": "python train.py", "comand": 1, "spare_nodes": "é\U0001f600"}, standby=[1])
    assert {one.key for one in raised.value.problems} == {"comand", "spare_nodes", "standby"}
    assert all(one.line == 0 for one in raised.value.problems)
    with pytest.raises(UsageError, match=r"name: not a value that train\.yaml can hold"):
        safelaunch.submit("train.yaml", name=object())


def test_values_mean_what_the_same_words_mean() -> None:
    from safelaunch.config.io.configfiles import override_words

    words = override_words({"name": "a b: #c", "slurm": {"nodes": 4, "exclusive": True}, "restart.max_restarts": 7,
                            "run_dir": Path("x"), "resume": None})
    assert words == ['name="a b: #c"', 'slurm={"nodes": 4, "exclusive": true}', "restart.max_restarts=7", 'run_dir="x"',
                     "resume=null"]
    config = resolve([], ["command=x", *words[1:]], {}, base_dir="/").config
    assert (config["slurm"]["nodes"], config["restart"]["max_restarts"], config["run_dir"]) == (4, 7, "/x")


def test_every_example_of_the_document_runs(tmp_path: Path, local_env: dict[str, str]) -> None:
    write_yaml(tmp_path, "--steps 30 --step-time 0.02 --save-every 5 --die-at 12")
    text = (ROOT / "docs" / "python.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    done = python("\n".join(examples), tmp_path, local_env)
    assert done.returncode == 0, done.stderr
    said = done.stdout
    assert "completed 0" in said and "job " in said and "True ('nothing to stop" in said
    assert re.search(r"^2 .*loss", said, re.MULTILINE) and "bloom completed 30" in said
    assert "[2, 4] COMPLETED 0" in said
    assert len(examples) == 11 and (tmp_path / "bloom.html").read_text().startswith("<!doctype html>")
    assert "loss scale 65536.0" in said


def test_a_training_is_submitted_by_values_alone(tmp_path: Path, local_env: dict[str, str]) -> None:
    code = ("import sys, safelaunch\nsaid = []\n"
            "run = safelaunch.submit({'name': 'plain', 'command': 'echo step 1 loss 2'}, say=said.append)\n"
            "print(run.wait(200).how, run.dir.name, [line.text for line in run.logs()], len(said))")
    done = python(code, tmp_path, local_env)
    assert done.stdout.startswith("completed plain ["), done.stderr
    assert "step 1 loss 2" in done.stdout and done.stdout.endswith(" 1\n")   # which cluster `auto` takes is said
