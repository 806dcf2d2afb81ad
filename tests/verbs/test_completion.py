"""What a shell completes, asked by a real bash and by the protocol of click; and what `help VERB` shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from safelaunch.cli import VERBS, run
from safelaunch.run.io import registry
from tests import deadlines

COMPLETE = """\
PATH={bin}:$PATH
eval "$(safelaunch completion bash)"
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_safelaunch_completion safelaunch
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(autouse=True)
def _a_registry_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def in_bash(folder: Path, words: str) -> list[str]:
    """What a bash offers, whose safelaunch waits for the list of runs as long as it takes."""
    program = folder / "bin" / "safelaunch"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {deadlines.__file__} "$@"\n')
    program.chmod(0o755)
    script = COMPLETE.format(bin=program.parent, words=words)
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return done.stdout.split()


def asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str) -> list[str]:
    """The candidates for the last of the words, as zsh or fish would get them."""
    monkeypatch.setenv("_SAFELAUNCH_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    assert run([]) == 0
    return [line.partition(",")[2] for line in capsys.readouterr().out.splitlines() if line]


def test_bash_completes_verbs_and_the_names_of_runs(tmp_path: Path) -> None:
    for name in ("bloom-176b", "bloom-mini", "other"):
        registry.register(tmp_path / name, name, f"{name}-1", "12")
    assert in_bash(tmp_path, "safelaunch sta") == ["status", "stacks"]
    assert sorted(in_bash(tmp_path, "safelaunch status blo")) == ["bloom-176b", "bloom-mini"]


def test_the_name_of_a_run_that_a_shell_could_read_as_code_is_not_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("bloom$(touch x)", "bloom;x", "bloom"):
        registry.register(tmp_path / "run", name, "x-1", "12")
        registry.register(tmp_path / name, name, "x-1", "12")
    assert asked(monkeypatch, capsys, "safelaunch logs blo") == ["bloom"]


@pytest.mark.parametrize(("words", "offered"), [
    ("safelaunch submit train.yaml restart.max_", [
        "restart.max_restarts=", "restart.max_without_progress=", "restart.max_jobs=", "restart.max_time="]),
    ("safelaunch submit train.yaml slurm.cpus-per-t", ["slurm.cpus-per-task="]),
    ("safelaunch stop --check", ["--checkpoint"]),
    ("safelaunch nodes sus", ["suspect"]),
    ("safelaunch no-verb x", []),
], ids=["keys", "options of sbatch", "options", "verbs below nodes", "no verb"])
def test_what_follows_a_verb_is_completed(
    words: str, offered: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(monkeypatch, capsys, words) == offered


def test_every_verb_can_be_asked_what_it_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in VERBS:
        assert "--help" in asked(monkeypatch, capsys, f"safelaunch {verb} --"), verb


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_code_that_asks_safelaunch_itself(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    assert f"_SAFELAUNCH_COMPLETE={shell}_complete" in capsys.readouterr().out


@pytest.mark.parametrize("value", ["", "bash_source", "1", "tcsh_complete"])
def test_a_variable_that_no_shell_has_set_changes_nothing(
    value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_SAFELAUNCH_COMPLETE", value)
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("safelaunch ")


def test_help_of_a_verb_is_what_the_verb_says_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "wait"]) == 0
    asked_by_word = capsys.readouterr().out
    assert run(["wait", "--help"]) == 0
    assert asked_by_word == capsys.readouterr().out
    assert run(["help", "wiat"]) == 2 and "Did you mean 'wait'?" in capsys.readouterr().err
