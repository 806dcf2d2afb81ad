"""A file of a shared folder is opened as what it says it is, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from safelaunch.base.io import sharedfile
from safelaunch.errors import RunFolderError
from safelaunch.run.io import journal, registry, runfolder
from safelaunch.supervisor.common import slurmends
from safelaunch.verbs.common.livepulse import read_heartbeat
from safelaunch.verbs.logs import attemptlogs, loglines
from safelaunch.verbs.logs.logfollow import Stream
from safelaunch.why.io import logchunks, logfiles
from safelaunch.why.rulebook import RULES
from tests.handmade import make_run


def link(path: Path) -> None:
    target = path.with_name("elsewhere")
    target.write_text("{}")
    path.symlink_to(target)


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(4 << 30)


ODD: dict[str, Callable[[Path], object]] = {
    "a link": link, "a pipe": os.mkfifo, "a folder": Path.mkdir, "4 GiB of zeros": huge}
odd = pytest.mark.parametrize("make", ODD.values(), ids=ODD.keys())


@odd
def test_what_is_no_small_regular_file_is_refused_at_once(make: Callable[[Path], object], tmp_path: Path) -> None:
    make(tmp_path / "file")
    with pytest.raises(sharedfile.OddFile):
        sharedfile.read(tmp_path / "file", 1000)


@pytest.mark.parametrize("most_bytes", [0, 3, 6, 7, 1 << 20])
def test_the_start_of_a_file_is_as_long_as_asked(most_bytes: int, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abcdef")
    assert sharedfile.read_start(tmp_path / "file", most_bytes) == b"abcdef"[:most_bytes]


@odd
def test_no_file_of_a_run_is_opened_in_another_way(make: Callable[[Path], object], tmp_path: Path) -> None:
    made = make_run(tmp_path / "run")
    made.submitted()
    for name in ("run.json", "pulse.json", "claims/7"):
        (made.dir / name).unlink(missing_ok=True)
        make(made.dir / name)
    with pytest.raises(RunFolderError):
        runfolder.load(made.dir)
    assert read_heartbeat(made.dir, made.run.state(), 0.0) is None
    assert journal.read_claim(made.dir, 7) is None


@pytest.mark.parametrize("make", [link, os.mkfifo, Path.mkdir])
def test_what_is_no_file_of_the_journal_is_left_out_and_said(make: Callable[[Path], object], tmp_path: Path) -> None:
    made = make_run(tmp_path / "run")
    made.submitted()
    make(made.dir / "journal" / "000007-n0-1.jsonl")
    read = journal.read(made.dir)
    assert [event.event for event in read.events] == ["submitted"]
    assert read.problems == ("journal/000007-n0-1.jsonl: no regular file",)
    assert journal.merge_raw(journal.read_raw(made.dir)).events == read.events


def test_the_journal_of_a_folder_that_has_gone_is_empty(tmp_path: Path) -> None:
    for partly in (False, True):
        read = journal.read(tmp_path / "gone", partly=partly)
        assert (read.events, read.problems) == ((), ())


not_files = pytest.mark.parametrize("make", [link, os.mkfifo, Path.mkdir], ids=["a link", "a pipe", "a folder"])


@not_files
def test_what_is_no_log_of_an_attempt_is_not_there(make: Callable[[Path], object], tmp_path: Path) -> None:
    made = make_run(tmp_path / "run")
    made.log(1, b"step 1\n")
    folder = made.dir / "attempts" / "0002"
    folder.mkdir()
    make(folder / "main.log")
    assert [path.parent.name for path in made.run.log_files] == ["0001"]


@not_files
def test_one_that_takes_a_logs_place_later_holds_up_no_reader(make: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "main.log"
    make(path)
    readers: list[Callable[[], object]] = [
        lambda: Stream(attemptlogs.AttemptLog(1, path, None), 0, None, 0.0), lambda: attemptlogs.tail_offset(path, 10)]
    if not path.is_symlink():   # these read what a person names, too
        readers += [lambda: loglines.read_cited(path, 0, True), lambda: logchunks.learn_source(str(path), 0)]
    for read in readers:
        with pytest.raises(sharedfile.OddFile):
            read()


def test_a_log_that_a_person_names_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.log").write_text("step 1\n")
    (tmp_path / "latest.log").symlink_to("real.log")
    assert logfiles.read_logs([tmp_path / "latest.log"], RULES).size_bytes == 7


@odd
def test_a_search_for_a_job_id_reads_only_files_of_a_journal(make: Callable[[Path], object], tmp_path: Path) -> None:
    made = make_run(tmp_path / "run")
    make(made.dir / "journal" / "000007-n0-1.jsonl")
    assert not registry.has_job(made.dir, "12")
    made.submitted("12")
    assert registry.has_job(made.dir, "12")


@odd
def test_a_jobs_output_is_read_from_its_end_and_from_nothing_else(
    make: Callable[[Path], object], tmp_path: Path
) -> None:
    make(tmp_path / "slurm-12.out")
    assert len(slurmends._tail(tmp_path / "slurm-12.out")) in (0, slurmends.OUTPUT_TAIL_BYTES)


@odd
def test_what_lies_under_a_claims_name_is_not_ours(make: Callable[[Path], object], tmp_path: Path) -> None:
    make(tmp_path / "7")
    assert not sharedfile.holds(tmp_path / "7", b"{}\n")
    (tmp_path / "8").write_bytes(b"{}\n")
    assert sharedfile.holds(tmp_path / "8", b"{}\n")
    assert not sharedfile.holds(tmp_path / "8", b"{}")
