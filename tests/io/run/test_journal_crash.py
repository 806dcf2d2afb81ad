"""The journal and the claims after a crash at any moment: reading recovers or says so, and nothing counts twice."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from safelaunch.base.model import Event
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import State
from safelaunch.run.io import journal
from safelaunch.run.io.journal import Direct, JournalFolder, Writer
from safelaunch.run.io.shared import SharedFolder
from safelaunch.run.journal import render

DEADLINE_S = 60.0
LIVES = 8
RACERS = 8
CLAIMS = 50 if os.environ.get("SAFELAUNCH_LONG") == "1" else 20


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    for name in ("journal", "claims"):
        (folder / name).mkdir(parents=True)
    return folder


@contextlib.contextmanager
def opened(kind: str, run_dir: Path) -> Iterator[JournalFolder]:
    """The run folder as a login node touches it, or as a job does."""
    if kind == "direct":
        yield Direct(run_dir)
        return
    shared = SharedFolder(run_dir, run_dir.parent / "spool")
    try:
        yield shared
    finally:
        shared.close(DEADLINE_S)


def forked(act: Callable[[int], None]) -> tuple[int, int]:
    """(pid, pipe to read) of a child that runs `act(pipe to write)` and ends."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(ours)
            act(theirs)
            code = 0
        finally:
            os._exit(code)
    os.close(theirs)
    return pid, ours


def read_words(pipe: int, first: bytes = b"") -> list[str]:
    """What the child has said, `first` included, once it has ended."""
    with open(pipe) as lines:
        return (first.decode() + lines.read()).split()


def claim_gen(folder: JournalFolder, run_dir: Path) -> int:
    """A generation of one's own, as a leader takes it at its birth."""
    number = journal.last_claim(run_dir)
    while True:
        number += 1
        claim = journal.render_claim(number, "h", f"lead {os.getpid()}", 1.0)
        if folder.publish(f"claims/{number}", claim, DEADLINE_S):
            return number


def write_for_ever(kind: str, run_dir: Path, pipe: int) -> None:
    """Lead, and write one or two lines at a time; say to `pipe` what is durable."""
    with opened(kind, run_dir) as folder:
        gen = claim_gen(folder, run_dir)
        writer = Writer(folder, gen, "h")
        while True:
            events = [writer.event("progress", attempt=1, step=writer.seq, pad="x" * random.randrange(300))
                      for _ in range(random.randrange(1, 3))]
            if writer.write(*events):
                os.write(pipe, f"{gen}.{writer.seq}\n".encode())


@pytest.mark.parametrize("kind", ["direct", "shared"])
def test_a_writer_killed_at_random_moments_loses_nothing_that_was_durable(kind: str, run_dir: Path) -> None:
    durable: dict[int, int] = {}
    for _ in range(LIVES):
        pid, pipe = forked(lambda pipe: write_for_ever(kind, run_dir, pipe))
        first = os.read(pipe, 1)
        time.sleep(random.random() * 0.06)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        for word in read_words(pipe, first):
            gen, _, seq = word.partition(".")
            durable[int(gen)] = int(seq)
    with opened(kind, run_dir):
        pass   # the next leader's courier delivers what the dead left in their outboxes
    merged = journal.read(run_dir)
    assert not merged.problems
    counts: dict[int, list[int]] = {}
    for event in merged.events:
        counts.setdefault(event.gen, []).append(event.seq)
    assert len(durable) == LIVES, "each life has a generation of its own"
    for number, last in durable.items():
        assert counts[number] == list(range(1, len(counts[number]) + 1)), "every line once, none missing between"
        assert len(counts[number]) >= last, "what was durable is there"
    assert fold(merged.events, fold(merged.events)) == fold(merged.events)


# --- cut at every byte --------------------------------------------------------------------------------------------

LIFE: tuple[tuple[str, dict[str, object]], ...] = (
    ("job_started", {"job": "11", "nodes": ["n0", "n1"], "batch_host": "n0"}),
    ("submitted", {"job": "12", "successor_of": "11", "exclude": []}),
    ("decision", {"row": "launch", "action": "launch", "why": "erster Versuch: größer als nichts"}),
    ("intent", {"claim": 2, "act": "launch", "attempt": 1}),
    ("attempt_started", {"attempt": 1, "job": "11", "nodes": ["n0", "n1"], "port": 20000}),
    ("outcome", {"claim": 2, "act": "launch", "ok": True}),
    ("progress", {"attempt": 1, "step": 120}),
    ("verdict", {"attempt": 1, "category": "unknown", "summary": "task 1 on n1: exit code 1"}),
    ("attempt_ended", {"attempt": 1, "how": "failed", "exit_code": 1}),
    ("fenced", {"attempt": 1}),
    ("checkpoint", {"attempt": 1, "step": 100}),
    ("node_suspected", {"node": "n1", "why": "seen twice"}),
)


def write_life(run_dir: Path, gen: int, take_over: bool = False) -> Path:
    """The journal file of one leader's life."""
    writer = Writer(Direct(run_dir), gen, f"h{gen}", clock=lambda: 1000.0 + gen)
    if take_over:
        writer.write(writer.event("took_over", job="11"))
    for event, data in LIFE:
        writer.write(writer.event(event, **data))
    return run_dir / writer.name


def test_a_file_cut_at_any_byte_reads_as_the_lines_before_the_cut(run_dir: Path) -> None:
    path = write_life(run_dir, 1)
    whole, data = journal.read(run_dir).events, path.read_bytes()
    ends = [offset + 1 for offset, byte in enumerate(data) if byte == ord("\n")]
    for length in range(len(data), -1, -1):
        os.truncate(path, length)
        merged = journal.read(run_dir)
        written = sum(end <= length + 1 for end in ends)   # a line that lacks its newline alone is whole
        assert merged.events == whole[:written]
        assert not merged.problems
        assert fold(merged.events) == fold(whole[:written])


def test_a_cut_file_beside_its_successors_file_costs_only_what_was_cut(run_dir: Path) -> None:
    first = write_life(run_dir, 1)
    write_life(run_dir, 2, take_over=True)
    data = first.read_bytes()
    for length in range(len(data), 0, -7):
        os.truncate(first, length)
        merged = journal.read(run_dir)
        assert not merged.problems
        assert [event.seq for event in merged.events if event.gen == 2] == list(range(1, len(LIFE) + 2))
        assert fold(merged.events).leader == "h2"


def test_a_hole_punched_anywhere_is_reported_and_costs_the_lines_it_touches(run_dir: Path) -> None:
    path = write_life(run_dir, 1)
    whole, data = journal.read(run_dir).events, path.read_bytes()
    for start in range(0, len(data) - 64, 13):
        path.write_bytes(data[:start] + b"\0" * 40 + data[start + 40:])
        merged = journal.read(run_dir)
        assert len(whole) - 2 <= len(merged.events) < len(whole)
        assert set(map(render, merged.events)) <= set(map(render, whole))
        assert merged.problems


def test_what_a_child_read_is_what_is_read_directly(run_dir: Path) -> None:
    path = write_life(run_dir, 1)
    path.write_bytes(path.read_bytes()[:-9] + bytes(range(256)) + b"\n")
    assert journal.merge_raw(json.loads(json.dumps(journal.read_raw(run_dir)))) == journal.read(run_dir)


@pytest.mark.parametrize("torn", [b'{"v":1,"t":1', b"\0\0\0", b'{"v":1}'], ids=["half a line", "zeros", "another line"])
def test_a_line_behind_a_torn_one_is_whole(run_dir: Path, torn: bytes) -> None:
    writer = Writer(Direct(run_dir), 1, "h")
    writer.write(writer.event("submitted", job="11"))
    with (run_dir / writer.name).open("ab") as file:
        file.write(torn)
    writer.write(writer.event("job_started", job="11", nodes=["n0"]))
    merged = journal.read(run_dir)
    assert [event.event for event in merged.events] == ["submitted", "job_started"]
    assert len(merged.problems) == 1


def test_a_full_disk_tears_one_line_and_the_next_is_whole(run_dir: Path) -> None:
    def fill_up(pipe: int) -> None:
        writer = Writer(Direct(run_dir), 1, "h")
        writer.write(writer.event("submitted", job="11"))
        size, hard = (run_dir / writer.name).stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, hard))
        try:
            writer.write(writer.event("progress", attempt=1, step=1))
        except OSError as error:
            os.write(pipe, os.strerror(error.errno or 0).encode())
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        writer.write(writer.event("job_started", job="11", nodes=["n0"]))

    pid, pipe = forked(fill_up)
    assert read_words(pipe) == ["File", "too", "large"]
    assert os.waitpid(pid, 0)[1] == 0
    merged = journal.read(run_dir)
    assert [event.event for event in merged.events] == ["submitted", "job_started"]
    assert [problem.rpartition(":")[2] for problem in merged.problems] == [" not a journal line"]


# --- claims -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["direct", "shared"])
def test_of_many_processes_exactly_one_wins_each_claim(kind: str, run_dir: Path) -> None:
    def race(pipe: int) -> None:
        with opened(kind, run_dir) as folder:
            for number in range(1, CLAIMS + 1):
                claim = journal.render_claim(number, "h", f"by {os.getpid()}", 1.0)
                won = folder.publish(f"claims/{number}", claim, DEADLINE_S)
                assert won is not None
                if won:
                    os.write(pipe, f"{number}\n".encode())

    racers = [forked(race) for _ in range(RACERS)]
    won = {pid: [int(number) for number in read_words(pipe)] for pid, pipe in racers}
    assert all(os.waitpid(pid, 0)[1] == 0 for pid, _ in racers)
    assert sorted(number for numbers in won.values() for number in numbers) == list(range(1, CLAIMS + 1))
    for pid, numbers in won.items():
        for number in numbers:
            claim = journal.read_claim(run_dir, number)
            assert claim is not None
            assert claim["action"] == f"by {pid}"
    assert journal.last_claim(run_dir) == CLAIMS
    assert not [path.name for path in (run_dir / "claims").iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("kind", ["direct", "shared"])
def test_publishers_killed_at_random_moments_leave_whole_claims_and_stop_nobody(kind: str, run_dir: Path) -> None:
    def publish_for_ever(pipe: int) -> None:
        with opened(kind, run_dir) as folder:
            while True:
                os.write(pipe, f"{claim_gen(folder, run_dir)}\n".encode())

    told: list[int] = []
    for _ in range(LIVES):
        pid, pipe = forked(publish_for_ever)
        first = os.read(pipe, 1)
        time.sleep(random.random() * 0.03)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        told += map(int, read_words(pipe, first))
    assert len(told) == len(set(told)), "no number was won twice"
    last = journal.last_claim(run_dir)
    assert last >= max(told)
    for number in range(1, last + 1):
        claim = journal.read_claim(run_dir, number)
        assert claim is not None, f"claim {number} is torn or missing"
        assert claim["gen"] == number
    with opened(kind, run_dir) as folder:
        assert claim_gen(folder, run_dir) > last


def test_drafts_that_a_lost_rename_left_behind_do_no_harm(run_dir: Path) -> None:
    mine = run_dir / "claims" / f".1.{os.uname().nodename}.{os.getpid()}"
    mine.write_bytes(b'{"v":1,"half')
    (run_dir / "claims" / ".7.elsewhere.4242").write_bytes(b"")
    assert journal.last_claim(run_dir) == 0
    assert Direct(run_dir).publish("claims/1", journal.render_claim(1, "h", "lead", 1.0))
    assert journal.last_claim(run_dir) == 1
    assert not mine.exists()


def test_a_draft_that_is_still_linked_to_its_claim_is_never_written_through(run_dir: Path) -> None:
    """Killed between link and unlink; much later another process of the same pid tries the same number."""
    old = journal.render_claim(1, "h", "lead", 1.0)
    mine = run_dir / "claims" / f".1.{os.uname().nodename}.{os.getpid()}"
    mine.write_bytes(old)
    os.link(mine, run_dir / "claims" / "1")
    assert Direct(run_dir).publish("claims/1", journal.render_claim(2, "h", "mine now", 2.0)) is False
    assert (run_dir / "claims" / "1").read_bytes() == old


@pytest.mark.parametrize("name", [".3.h.1", "x", "3x", "-3", "²", "3.tmp"])
def test_what_is_no_number_is_no_claim(run_dir: Path, name: str) -> None:
    (run_dir / "claims" / name).write_text("{}")
    assert journal.last_claim(run_dir) == 0


def test_a_great_number_in_claims_makes_no_search_long(run_dir: Path) -> None:
    for gen in (1, 2):
        (run_dir / "claims" / str(gen)).write_bytes(journal.render_claim(gen, "h", f"lead job {gen}", 1.0))
    for name in ("9" * 8, "9" * 12, "9" * 255):
        (run_dir / "claims" / name).write_text("{")
    begin_s = time.process_time()
    assert [claim["gen"] for claim in journal.claims_after(run_dir, 1)] == [2]
    assert journal.newest_lead(run_dir) == ("2", 2) and journal.last_launch(run_dir) is None
    assert journal.last_claim(run_dir) == 99_999_999
    assert time.process_time() - begin_s < 1


@pytest.mark.parametrize("content", [b"", b'{"v":1,"gen"', b"[]", b"\xff\xfe\0"],
                         ids=["empty", "torn", "a list", "binary"])
def test_a_claim_that_cannot_be_read_is_unknown(run_dir: Path, content: bytes) -> None:
    (run_dir / "claims" / "1").write_bytes(content)
    assert journal.read_claim(run_dir, 1) is None
    assert journal.read_claim(run_dir, 2) is None


def test_a_run_folder_without_any_journal_is_an_empty_run(tmp_path: Path) -> None:
    assert fold(journal.read(tmp_path).events) == State()
    assert journal.last_claim(tmp_path) == 0


def test_numbers_of_a_writer_follow_each_other_and_its_file_names_it(run_dir: Path) -> None:
    writer = Writer(Direct(run_dir), 7, "h", clock=lambda: 5.0)
    assert [writer.event("progress") for _ in range(2)] == [
        Event(5.0, 7, 1, "h", "progress"), Event(5.0, 7, 2, "h", "progress")]
    assert writer.name == f"journal/000007-h-{os.getpid()}.jsonl"
