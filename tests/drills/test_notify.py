"""A run on the local cluster tells people: once, and its webhook's URL stays where it was."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.drills.proofs import tell_last
from tests.io.notify.test_notify import SECRET
from tests.io.notify.test_notify import webhook as webhook
from tests.localruns import SubmitLocal
from tests.patience import Patience


def command_lines() -> bytes:
    found = b""
    for path in Path("/proc").iterdir():
        with suppress(OSError):
            if path.name.isdigit():
                found += (path / "cmdline").read_bytes()
    return found


def test_a_run_that_gives_up_tells_a_webhook_once_and_its_url_is_nowhere(
    submit_local: SubmitLocal, local_env: dict[str, str], webhook: tuple[str, list[dict[str, Any]]]
) -> None:
    url, got = webhook
    local_env |= {"HOOK": url, "no_proxy": "*"}
    run = submit_local("--steps 40 --step-time 0.02 --die-at 8 --raise --save-every 100", "notify.to=[env:HOOK]",
                       "restart.max_restarts=0")
    seen, patience = b"", Patience(60)
    while run.state().ended is None and not patience.is_over():
        seen += command_lines()
        time.sleep(0.05)
    ended = run.wait_end()

    assert ended.how == "gave_up", run.story()
    assert [one["events"] for one in got] == [["gave_up"]], run.story()
    attempt = run.state().attempts[-1]
    text = str(got[0]["text"])
    assert f"Verdict on attempt 1: {attempt.category}" in text and f"safelaunch why {run.run_dir}" in text, text
    assert "Evidence in attempts/0001/main.log:" in text, text
    assert [event.data["sent"] for event in run.events("notified")] == [["env:HOOK"]]
    assert SECRET.encode() not in seen and str(run.run_dir).encode() in seen
    shown = [run.type("config", "train.yaml", "notify.to=[env:HOOK]").stdout, run.type("events", "--all").stdout]
    assert all("env:HOOK" in text and SECRET not in text for text in shown), shown
    with_url = [path.name for path in run.run_dir.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    # The environment of the submit is kept for later jobs; only its owner can read that (docs/security.md).
    assert set(with_url) <= {"submit.env"} and not os.stat(run.run_dir / "submit.env").st_mode & 0o077


def test_a_program_that_hangs_holds_up_no_restart_and_is_reported_once(
    submit_local: SubmitLocal, tmp_path: Path
) -> None:
    run = submit_local("--steps 100000 --step-time 0.02 --die-at 25 --save-every 10 --until last",
                       "notify.when=[restarted]",
                       f"notify.command=[/bin/sh, -c, 'echo x >> {tmp_path}/begun; sleep 1000']")
    run.wait_for((tmp_path / "begun").exists, 60, "the program did not begin")
    run.wait_step(26, attempt=2)
    tell_last(run.folder, 1)
    ended = run.wait_end()
    assert ended.how == "completed", run.story()
    assert run.story().count("a message to command:/bin/sh was not sent") <= 1


def test_notify_test_says_what_became_of_each_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    webhook: tuple[str, list[dict[str, Any]]]
) -> None:
    from safelaunch.cli import run

    monkeypatch.setenv("HOOK", webhook[0])
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("SAFELAUNCH_SITE_CONFIG", str(tmp_path / "site.yaml"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "site.yaml").touch()
    text = "name: bloom\ncommand: python x.py\ncluster: local\n"
    (tmp_path / "none.yaml").write_text(text)
    (tmp_path / "good.yaml").write_text(text + "notify: {to: [env:HOOK]}\n")
    (tmp_path / "half.yaml").write_text(text + "notify: {to: [env:HOOK, env:NOT_THERE]}\n")
    assert run(["notify", "--test", str(tmp_path / "good.yaml")]) == 0
    assert capsys.readouterr().out == "env:HOOK: sent\n"
    assert run(["notify", "--test", str(tmp_path / "half.yaml"), "--json"]) == 1
    assert '"target": "env:NOT_THERE", "sent": false, "trouble": "the variable NOT_THERE is' in capsys.readouterr().out
    assert run(["notify", "--test", str(tmp_path / "none.yaml")]) == 2
    assert run(["notify", str(tmp_path / "good.yaml")]) == 2
    assert "tells nobody" in (said := capsys.readouterr().err) and "--test" in said
    assert [one["events"] for one in webhook[1]] == [["test"], ["test"]]
