"""safelaunch metrics: figures of all runs, of some, and in a file for node_exporter."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from safelaunch.cli import run
from safelaunch.run.io import registry
from safelaunch.status.metrics import FAMILIES
from tests import promtext
from tests.handmade import Made, make_run, make_running
from tests.ports import free_ports

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


@pytest.fixture
def bloom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """A run that goes on, in the list of one's own runs."""
    made = make_running(tmp_path, monkeypatch)
    registry.register(made.dir, "bloom", "1a2b3c4d", "12", "")
    return made


def runs_in(text: str) -> set[str]:
    return {dict(labels)["run"] for labels in promtext.parse(text).get("safelaunch_run_info", {})}


def test_all_runs_that_go_on_are_printed_and_one_that_cannot_be_read_is_told(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make_run(tmp_path / "llama", "name: llama\ncommand: train\n", "deadbeef")
    registry.register(other.dir, "llama", "deadbeef", "13", "")
    assert run(["metrics"]) == 0
    assert runs_in(capsys.readouterr().out) == {"bloom", "llama"}
    (other.dir / "run.json").write_bytes(b"{}")
    assert run(["metrics"]) == 0
    said = capsys.readouterr()
    assert runs_in(said.out) == {"bloom"} and "llama cannot be read" in said.err


def test_a_run_that_ended_long_ago_is_printed_only_where_it_is_named(
    bloom: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    bloom.event("completed", ago_s=2 * 86400, exit_code=0, why="done")
    assert run(["metrics"]) == 0
    assert capsys.readouterr().out == ""
    assert run(["metrics", "bloom"]) == 0
    assert runs_in(capsys.readouterr().out) == {"bloom"}


def test_the_textfile_is_replaced_as_a_whole_and_others_may_read_it(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "collector"
    folder.mkdir()
    before = os.umask(0o077)
    try:
        assert [run(["metrics", "--textfile", str(folder)]) for _ in range(2)] == [0, 0]
    finally:
        os.umask(before)
    (path,) = folder.iterdir()
    assert path.name.startswith("safelaunch-") and path.suffix == ".prom"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644 and runs_in(path.read_text()) == {"bloom"}
    assert capsys.readouterr().out == ""


def test_a_folder_that_cannot_be_written_is_said(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["metrics", "--textfile", str(tmp_path / "missing")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_every_family_is_documented() -> None:
    assert set(re.findall("^[|] `(safelaunch_[a-z_]+)`", DOCS.read_text(), re.MULTILINE)) == set(FAMILIES)


@pytest.mark.skipif(shutil.which("prometheus-node-exporter") is None, reason="no node_exporter on this machine")
def test_the_real_node_exporter_reads_each_value_of_the_textfile(
    bloom: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "collector"
    folder.mkdir()
    odd = make_run(tmp_path / 'o"d ä', "name: llama\ncommand: train\n", "deadbeef")
    registry.register(odd.dir, "llama", "deadbeef", "13", "")
    assert run(["metrics", "--textfile", str(folder)]) == 0
    (written,) = folder.iterdir()
    lines = scrape(folder).splitlines(keepends=True)
    assert "node_textfile_scrape_error 0\n" in lines
    served = promtext.parse("".join(line for line in lines if re.match("(# (HELP|TYPE) )?safelaunch_", line)))
    assert served == promtext.parse(written.read_text()) and "safelaunch_run_info" in served


def scrape(folder: Path) -> str:
    """What node_exporter says of a folder of textfiles, once it listens."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    exporter = subprocess.Popen(
        ["prometheus-node-exporter", "--collector.disable-defaults", "--web.disable-exporter-metrics",
         "--collector.textfile", f"--collector.textfile.directory={folder}", f"--web.listen-address={address}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
                    return str(answer.read().decode())
            except OSError:
                assert exporter.poll() is None, exporter.stderr and exporter.stderr.read()
                time.sleep(0.1)
        raise AssertionError("node_exporter does not listen")
    finally:
        exporter.kill()
        exporter.wait()
