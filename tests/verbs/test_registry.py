"""The list of runs: found by name, prefix, id or job; torn, old and vanished entries harm nobody."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from safelaunch.run.io import registry
from tests.handmade import Made, fake_command, make_run


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def made(folder: Path, name: str, run_id: str, job: str = "1") -> Made:
    folder.parent.mkdir(parents=True, exist_ok=True)
    run = make_run(folder, f"name: {name}\ncommand: x\n", run_id)
    assert registry.register(run.dir, name, run_id, job)
    return run


def test_an_id_is_never_to_be_taken_for_a_jobs() -> None:
    made = [registry.new_id() for _ in range(300)]
    assert all(re.fullmatch(r"[a-f][0-9a-f]{7}", one) for one in made) and len(set(made)) == 300


@pytest.mark.parametrize("text", ["bloom-mini", "bloom", "aaaa1111", "aaaa", "77"],
                         ids=["name", "prefix of the name", "run id", "prefix of the id", "first job"])
def test_a_run_is_found_by(text: str, tmp_path: Path) -> None:
    run = made(tmp_path / "a" / "one", "bloom-mini", "aaaa1111", "77")
    made(tmp_path / "b" / "two", "gpt", "bbbb2222", "78")
    assert registry.find(text) == [run.dir]


def test_a_job_is_found_also_where_slurm_has_begun_to_count_again(tmp_path: Path) -> None:
    run = made(tmp_path / "old", "old", "1a2b3c4d", "67000000")
    run.submitted("67000000")
    run.event("submitted", job="5", successor_of="67000000")
    assert registry.find("5") == [run.dir] and registry.find("6") == []


def test_a_later_job_of_a_run_is_found_in_its_journal(tmp_path: Path) -> None:
    run = made(tmp_path / "one", "bloom", "aaaa1111", "77")
    run.submitted("77")
    run.event("submitted", job="91", successor_of="77")
    made(tmp_path / "two", "gpt", "bbbb2222", "78")
    assert registry.find("91") == [run.dir]
    assert registry.find("92") == []


def test_slurm_is_asked_for_its_name_only_where_the_runs_are_of_several_clusters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_command(tmp_path / "bin", "scontrol", f"echo asked >>{tmp_path}/asked; echo 'ClusterName = beta'")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    of = {}
    for number, cluster in enumerate(("alpha", "alpha", "beta", "alpha")):
        run = make_run(tmp_path / str(number) / "run", f"name: r{number}\ncommand: x\n", f"{number}" * 8)
        registry.register(run.dir, f"r{number}", f"{number}" * 8, "77" if number else "76", cluster)
        of[number] = run.dir
        if number == 1:
            assert registry.find("77") == [run.dir] and not (tmp_path / "asked").exists()
    assert registry.find("77") == [of[2]] and (tmp_path / "asked").exists()


def test_an_exact_name_beats_a_prefix(tmp_path: Path) -> None:
    exact = made(tmp_path / "a" / "one", "bloom", "aaaa1111")
    made(tmp_path / "b" / "two", "bloom-mini", "bbbb2222")
    assert registry.find("bloom") == [exact.dir]


def test_one_name_in_two_places_is_ambiguous_newest_first(tmp_path: Path) -> None:
    first = made(tmp_path / "a" / "bloom", "bloom", "aaaa1111")
    second = made(tmp_path / "b" / "bloom", "bloom", "bbbb2222")
    assert registry.find("bloom") == [second.dir, first.dir]


def test_of_two_runs_of_one_millisecond_the_later_line_is_the_newer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.0)
    first = made(tmp_path / "a" / "bloom", "bloom", "aaaa1111")
    second = made(tmp_path / "b" / "bloom", "bloom", "bbbb2222")
    assert registry.find("bloom") == [second.dir, first.dir]


def test_the_name_of_a_series_means_its_newest_run_and_the_folder_an_older_one(tmp_path: Path) -> None:
    made(tmp_path / "bloom", "bloom", "aaaa1111")
    second = made(tmp_path / "bloom-2", "bloom", "bbbb2222")
    third = made(tmp_path / "bloom-3", "bloom", "cccc3333")
    assert registry.find("bloom") == [third.dir]
    assert registry.find("bloom-2") == [second.dir]


def test_vanished_folders_are_forgotten(tmp_path: Path) -> None:
    run = made(tmp_path / "one", "bloom", "aaaa1111")
    (run.dir / "run.json").unlink()
    assert registry.find("bloom") == []
    assert list(registry.entries()) == []


@pytest.mark.parametrize("junk", [b'{"v":1,"t":1,"na', b"\0\0\0\n", b'{"v":9,"dir":"/x"}\n', b"[]\n", b'{"v":1}\n',
                                  b"\xff\xfe\n", b'{"v":1,"dir":[],"name":1,"run_id":2,"job":3,"t":"x"}\n'],
                         ids=["torn", "zeros", "later version", "a list", "keys missing", "not UTF-8", "odd types"])
def test_an_odd_line_before_harms_nothing(junk: bytes, tmp_path: Path, state_home: Path) -> None:
    (state_home / "safelaunch").mkdir(parents=True)
    registry.file().write_bytes(junk)
    run = made(tmp_path / "one", "bloom", "aaaa1111")
    assert registry.find("bloom") == [run.dir]


def test_without_a_list_nothing_is_found() -> None:
    assert registry.find("bloom") == []


def test_a_home_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert registry.register(tmp_path / "run", "bloom", "aaaa1111", "1") is False


def test_the_list_is_its_owners_alone(tmp_path: Path) -> None:
    made(tmp_path / "one", "bloom", "aaaa1111")
    assert stat.S_IMODE(registry.file().stat().st_mode) == 0o600
    assert stat.S_IMODE(registry.file().parent.stat().st_mode) == 0o700


def test_a_relative_state_home_is_ignored_as_its_standard_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert registry.file() == tmp_path / ".local" / "state" / "safelaunch" / "runs.jsonl"


def test_many_writers_at_once_lose_no_line(tmp_path: Path) -> None:
    script = ("import sys; from pathlib import Path; from safelaunch.run.io import registry\n"
              "for i in range(100): registry.register(Path(f'/r/{sys.argv[1]}/{i}'), 'n', 'i', '1')")
    writers = [subprocess.Popen([sys.executable, "-c", script, str(number)], env=os.environ) for number in range(4)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0, 0]
    lines = registry.file().read_text().splitlines()
    assert len({json.loads(line)["dir"] for line in lines}) == 400


def test_a_long_list_is_shortened_by_a_reader_and_keeps_the_newest(tmp_path: Path, state_home: Path) -> None:
    (state_home / "safelaunch").mkdir(parents=True)
    line = '{"v":1,"t":%d,"name":"' + "x" * 80 + '","run_id":"i","job":"1","dir":"/gone/%d"}\n'
    registry.file().write_text("".join(line % (number, number) for number in range(20_000)))
    run = made(tmp_path / "one", "bloom", "aaaa1111")

    assert registry.find("bloom") == [run.dir]

    assert registry.file().stat().st_size < registry.COMPACT_BYTES / 4
    assert len(registry.file().read_text().splitlines()) == registry.KEPT_RUNS
    assert registry.find("bloom") == [run.dir]
