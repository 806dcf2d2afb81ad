"""What Slurm has said of itself is asked again after a few minutes, elsewhere, and where the note is unreadable."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from safelaunch.run.io import clustername
from safelaunch.run.io.clustername import ClusterName, FederatedName, KeptAnswers
from tests.handmade import fake_command


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A user's environment, and a scontrol that says a name and counts its calls."""
    fake_command(tmp_path / "bin", "scontrol", f'echo "$2" >>{tmp_path}/asked; echo "ClusterName = Big"')
    return {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "HOME": str(tmp_path)}


def ask(env: dict[str, str]) -> tuple[str, str]:
    kept = KeptAnswers(env)
    cluster, federated = ClusterName(env, kept), FederatedName(env, kept)
    return cluster.name(), federated.name()


def asked(env: dict[str, str]) -> list[str]:
    return sorted((Path(env["HOME"]) / "asked").read_text().split())


def note(env: dict[str, str]) -> Path:
    return Path(env["HOME"]) / ".local/state/safelaunch/slurm.json"


def test_slurm_is_asked_once_for_all_submissions_of_a_few_minutes(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [ask(env) for _ in range(3)] == [("big", "")] * 3
    assert asked(env) == ["config", "federation"] and note(env).stat().st_mode & 0o777 == 0o600
    now_t = time.time()
    for later_s in (-10.0, clustername.KEPT_S + 1.0):   # a clock that was set back knows no age
        monkeypatch.setattr(time, "time", lambda later_s=later_s: now_t + later_s)
        ask(env)
    assert len(asked(env)) == 6


@pytest.mark.parametrize("change", ["SLURM_CONF", "PATH"])
def test_another_cluster_of_the_same_home_is_asked(env: dict[str, str], tmp_path: Path, change: str) -> None:
    ask(env)
    fake_command(tmp_path / "other", "scontrol", "echo ClusterName = Small")
    other = {"SLURM_CONF": "/nowhere/slurm.conf", "PATH": f"{tmp_path}/other:{env['PATH']}"}[change]
    assert ask({**env, change: other})[0] == ("small" if change == "PATH" else "big")
    assert len(asked(env)) == (4 if change == "SLURM_CONF" else 2)


@pytest.mark.parametrize("content", [
    "", "[", "[]", "{}", "[" * 60_000, "\xff", '{"place": 1}', "null", json.dumps({"place": [], "since_t": "x"}),
    "ANSWERS"], ids=range(10))
def test_an_unreadable_note_is_none(env: dict[str, str], content: str) -> None:
    ask(env)
    odd = json.dumps({**json.loads(note(env).read_text()), "answers": [1]})
    note(env).write_text(odd if content == "ANSWERS" else content, encoding="latin-1")
    assert ask(env) == ("big", "") and len(asked(env)) == 4


def test_no_answer_is_not_kept_and_a_home_that_takes_no_note_changes_nothing(
    env: dict[str, str], tmp_path: Path
) -> None:
    note(env).parent.mkdir(parents=True)
    note(env).mkdir()
    assert ask(env) == ask({key: value for key, value in env.items() if key != "HOME"}) == ("big", "")
    note(env).rmdir()
    fake_command(tmp_path / "bin", "scontrol", "exit 1")
    assert ask(env) == ("", "") and not note(env).exists()
