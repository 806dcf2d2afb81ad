"""The names on the way to a run folder, on a real filesystem."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from safelaunch.base.io.folderroute import look, route
from safelaunch.decide.ends.vanished import Look, Spot, missing_at


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "disk/runs/a").mkdir(parents=True)
    (tmp_path / "project").mkdir()
    (tmp_path / "project/runs").symlink_to("../disk/runs")
    return tmp_path


def _gone(run_dir: Path, change: object) -> str | None:
    places = [Spot(*one) for one in route(str(run_dir))]
    assert callable(change)
    change()
    ids, is_listed = look([place.path for place in places])
    return missing_at(places, Look(tuple(ids), is_listed))


def test_links_and_what_they_point_to_are_on_the_way(folder: Path) -> None:
    names = [path for path, _, _ in route(str(folder / "project/runs/a"))]
    assert names[0] == "/"
    assert names[-4:] == [str(folder / name) for name in ("project/runs", "disk", "disk/runs", "disk/runs/a")]


@pytest.mark.parametrize(("what", "gone"), [
    ("disk/runs/a", "disk/runs/a"), ("disk/runs", "disk/runs"), ("disk", "disk"), ("project", "project"),
    ("project/runs", "project/runs")])
def test_renamed_on_the_way_is_gone(folder: Path, what: str, gone: str) -> None:
    found = _gone(folder / "project/runs/a", lambda: (folder / what).rename(folder / "elsewhere"))
    assert found == str(folder / gone)


def test_nothing_is_gone_of_what_is_there(folder: Path) -> None:
    assert _gone(folder / "project/runs/a", lambda: None) is None


def test_a_file_in_the_place_of_a_folder_is_no_folder(folder: Path) -> None:
    def change() -> None:
        (folder / "disk/runs").rename(folder / "disk/old")
        (folder / "disk/runs").write_text("")
    assert _gone(folder / "disk/runs/a", change) == str(folder / "disk/runs/a")


def test_a_circle_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links") as raised:
        route(str(tmp_path / "a"))
    assert raised.value.errno == errno.ELOOP
