"""safelaunch release: gives back what is kept, and leaves no request behind where nothing is."""

from __future__ import annotations

from pathlib import Path

import pytest

from safelaunch.cli import run
from tests.handmade import Made, make_run


@pytest.fixture
def bloom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    made = make_run(tmp_path / "bloom")
    made.running()
    return made


def test_kept_nodes_are_given_back(bloom: Made, capsys: pytest.CaptureFixture[str]) -> None:
    bloom.failed()
    bloom.event("preserved", until=bloom.now + 600, nodes=["n0"])
    assert run(["release"]) == 0
    assert (bloom.dir / "control" / "release").exists()
    assert "are given back within seconds" in capsys.readouterr().err
    assert run(["release"]) == 0
    assert "has asked for that already" in capsys.readouterr().err


@pytest.mark.parametrize("ended", [False, True], ids=["running", "ended"])
def test_without_kept_nodes_nothing_is_touched(bloom: Made, ended: bool, capsys: pytest.CaptureFixture[str]) -> None:
    if ended:
        bloom.completed()
    assert run(["release"]) == 0
    assert "no nodes are kept" in capsys.readouterr().err
    assert not (bloom.dir / "control" / "release").exists()
