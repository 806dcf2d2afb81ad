"""The ledger's folder: many writers, torn and hostile files, a team, a frozen filesystem."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from safelaunch.base.io.owners import name_of
from safelaunch.base.io.probe import ChildAnswer, run_in_child
from safelaunch.launch.settings import Suspects
from safelaunch.nodehealth.io import ledger
from safelaunch.nodehealth.ledger import CLEARED, NodeEvidence, standings
from safelaunch.nodehealth.ledgerlines import render_line
from safelaunch.nodehealth.nodeuse import NodeUse, render_use
from tests.frozen import FuseMount, LoopMount

T = TypeVar("T")
NOW = time.time()
WEEK_S = 7 * 86400.0
ALICE, BOB, MALLORY, TEAM = 60001, 60002, 60003, 60100   # no accounts: a kernel needs none

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users: needs root")


def evidence(node: str = "n1", *, attempt: int | None = 1, why: str = "why", kind: str = "lost") -> NodeEvidence:
    return NodeEvidence(node, kind, round(NOW, 3), why, "whoever", "1a2b3c4d", attempt)


def as_user(uid: int, fn: Callable[[], T], *, umask: int = 0o077, group: int = TEAM) -> ChildAnswer[T]:
    """What `fn` gives when that user, a member of the group, calls it."""
    def in_child() -> T:
        os.umask(umask)
        os.setgroups([group])
        os.setgid(uid)
        os.setuid(uid)
        return fn()
    return run_in_child(in_child, 60.0)


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """A team's folder, as docs/nodes.md says to make it."""
    for folder in (tmp_path, *tmp_path.parents):
        if stat.S_IMODE(folder.stat().st_mode) & 0o001 == 0:
            folder.chmod(0o711)   # pytest's own are closed to other users
        if folder.name.startswith("pytest-of"):
            break
    folder = tmp_path / "team"
    folder.mkdir()
    os.chown(folder, ALICE, TEAM)
    folder.chmod(0o3770)
    return folder


# --- where it is --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "env", "expected"),
    [
        (None, {"XDG_STATE_HOME": "/state", "HOME": "/home/a"}, "/state/safelaunch/nodes"),
        (None, {"XDG_STATE_HOME": "state", "HOME": "/home/a"}, "/home/a/.local/state/safelaunch/nodes"),
        (None, {"HOME": "/home/a"}, "/home/a/.local/state/safelaunch/nodes"),
        ("/team/nodes", {}, "/team/nodes"),
        ("~/nodes", {"HOME": "/home/a"}, "/home/a/nodes"),
    ],
    ids=["the state folder", "one that is not absolute does not count", "the home", "the team's", "below the home"],
)
def test_where_the_ledger_lies(wanted: str | None, env: dict[str, str], expected: str) -> None:
    assert ledger.folder_of(Suspects(ledger=wanted), env) == Path(expected)


@pytest.mark.parametrize(("wanted", "env"), [(None, {}), ("nodes", {"HOME": "/home/a"}), ("~/nodes", {})],
                         ids=["no home", "a relative path", "no home for ~"])
def test_without_a_place_there_is_no_ledger(wanted: str | None, env: dict[str, str]) -> None:
    with pytest.raises(OSError, match=r"HOME is not set|no absolute path"):
        ledger.folder_of(Suspects(ledger=wanted), env)


# --- writing and reading ------------------------------------------------------------------------------------------


def test_what_is_written_is_read_with_its_writer_as_owner(tmp_path: Path) -> None:
    found = (evidence("n1"), evidence("n2", kind=CLEARED, attempt=None))
    assert ledger.append(tmp_path / "a" / "b", found) == 2
    me = name_of(os.geteuid())
    assert [(one.node, one.kind, one.owner, one.t) for one in ledger.read(tmp_path / "a" / "b")] == [
        (one.node, one.kind, me, one.t) for one in found]


def test_a_ledger_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    assert ledger.read(tmp_path / "none") == ()


def test_nothing_to_write_makes_no_folder(tmp_path: Path) -> None:
    assert ledger.append(tmp_path / "none", ()) == 0
    assert not (tmp_path / "none").exists()


def test_ones_own_ledger_is_for_nobody_else(tmp_path: Path) -> None:
    os.umask(umask := os.umask(0))
    ledger.append(tmp_path / "state" / "nodes", [evidence()])
    (file,) = (tmp_path / "state" / "nodes").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700 & ~umask


def _write_many(folder: Path, who: int, count: int) -> None:
    for number in range(count):
        ledger.append(folder, [evidence(f"n{who}", attempt=number, why="x" * 300)])


def test_writers_at_once_lose_no_line(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_many, args=(tmp_path / "nodes", who, 60)) for who in range(6)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        ledger.read(tmp_path / "nodes")
    assert [writer.exitcode for writer in writers] == [0] * 6
    assert len(ledger.read(tmp_path / "nodes")) == 6 * 60


def test_a_file_cut_at_any_byte_loses_its_last_line_only(tmp_path: Path) -> None:
    ledger.append(tmp_path, [evidence(attempt=number) for number in (1, 2, 3)])
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    ends = [index + 1 for index, byte in enumerate(content) if byte == 10]
    for size in range(len(content)):
        file.write_bytes(content[:size])
        whole = sum(size >= end - 1 for end in ends)   # the newline itself is no loss
        assert len(ledger.read(tmp_path)) == whole
        ledger.append(tmp_path, [evidence(attempt=9)])
        assert 9 in {one.attempt for one in ledger.read(tmp_path)}


def test_a_full_file_is_refused_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "FILE_MAX_BYTES", 2000)
    with pytest.raises(OSError, match="full for this month"):
        for number in range(100):
            ledger.append(tmp_path, [evidence(attempt=number)])
    assert 5 < len(ledger.read(tmp_path)) < 20


@pytest.mark.root
@pytest.mark.parametrize("loop_mount", [8], indirect=True)
def test_a_full_disk_is_said_and_costs_nothing_that_was_there(loop_mount: LoopMount) -> None:
    folder = loop_mount.path / "nodes"
    ledger.append(folder, [evidence()])
    with pytest.raises(OSError, match="No space left"), (loop_mount.path / "filler").open("wb", buffering=0) as filler:
        while filler.write(bytes(1 << 10)):
            pass
    with pytest.raises(OSError, match="No space left"):
        for number in range(50):
            ledger.append(folder, [evidence(attempt=number, why="x" * 900)])
    assert ledger.read(folder)[0] == replace(evidence(), owner=name_of(os.geteuid()))


def test_a_reader_starts_with_the_newest_month_and_takes_so_much_of_each_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = render_line(evidence("old"))
    for month, node in (("2026-01", "old"), ("2026-11", "new"), ("2026-06", "middle")):
        (tmp_path / f"{os.geteuid()}-n0-{month}.jsonl").write_bytes(line.replace(b"old", node.encode()))
    monkeypatch.setattr(ledger, "USER_MAX_FILES", 2)
    assert [one.node for one in ledger.read(tmp_path)] == ["new", "middle"]
    monkeypatch.setattr(ledger, "USER_MAX_BYTES", len(line) + 2)
    assert [one.node for one in ledger.read(tmp_path)] == ["new"]


# --- others in the folder -----------------------------------------------------------------------------------------


def test_what_is_no_file_of_the_ledger_harms_no_reader(tmp_path: Path) -> None:
    ledger.append(tmp_path, [evidence()])
    name = "0-n0-2026-11.jsonl".replace("n0", "{}")
    os.mkfifo(tmp_path / name.format("pipe"))
    (tmp_path / name.format("link")).symlink_to("/etc/passwd")
    (tmp_path / name.format("loop")).symlink_to(tmp_path / name.format("loop"))
    (tmp_path / name.format("folder")).mkdir()
    (tmp_path / name.format("garbage")).write_bytes(random.Random(1).randbytes(5000) + b"\n" * 50 + b"\0" * 500)
    (tmp_path / name.format("device")).symlink_to("/dev/zero")
    (tmp_path / "note.txt").write_bytes(render_line(evidence("n2")))
    assert [one.node for one in ledger.read(tmp_path)] == ["n1"]


def test_a_pipe_in_the_place_of_ones_own_file_blocks_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ledger._name(NOW))
    with pytest.raises(OSError) as caught:
        ledger.append(tmp_path, [evidence()])
    assert caught.value.errno == errno.ENXIO


@needs_root
@pytest.mark.root
def test_a_team_reads_what_each_wrote_whatever_his_umask(team: Path) -> None:
    for uid in (ALICE, BOB):
        assert as_user(uid, partial(ledger.append, team, [evidence(f"n{uid}")])).value == 1
    raw = as_user(BOB, lambda: ledger.read_raw(team))
    assert raw.value is not None, raw.error
    assert {(one.node, one.owner) for one in ledger.parse_raw(raw.value)} == {
        (f"n{ALICE}", str(ALICE)), (f"n{BOB}", str(BOB))}
    assert {stat.S_IMODE(file.stat().st_mode) for file in team.iterdir()} == {0o640}


@needs_root
@pytest.mark.root
def test_nobody_writes_or_removes_the_words_of_another(team: Path) -> None:
    as_user(ALICE, lambda: ledger.append(team, [evidence()]))
    (file,) = team.iterdir()
    for harm in (file.unlink, lambda: file.write_bytes(b""), lambda: file.rename(team / "gone")):
        assert as_user(MALLORY, harm).errno in (errno.EPERM, errno.EACCES)
    assert as_user(ALICE + 9, lambda: ledger.read_raw(team), group=ALICE + 9).errno == errno.EACCES


@needs_root
@pytest.mark.root
def test_a_file_that_somebody_put_in_the_place_of_ones_own_is_not_written_to(team: Path) -> None:
    trap = team / ledger._name(NOW).replace(f"{os.geteuid()}-", f"{ALICE}-", 1)
    as_user(MALLORY, lambda: trap.write_bytes(b""))
    trap.chmod(0o666)
    assert as_user(ALICE, lambda: ledger.append(team, [evidence()])).errno in (errno.EPERM, errno.EACCES)
    assert trap.read_bytes() == b""


@needs_root
@pytest.mark.root
def test_the_owner_of_a_file_is_the_owner_of_its_words(team: Path) -> None:
    lie = render_line(evidence()).replace(b'"v":1', b'"v":1,"owner":"root"')
    forged = team / f"{ALICE}-n0-2026-11.jsonl"
    as_user(MALLORY, lambda: forged.write_bytes(lie))
    assert [one.owner for one in ledger.read(team)] == [str(MALLORY)]


@needs_root
@pytest.mark.root
def test_a_team_folder_is_made_below_one_that_hands_its_group_on(team: Path) -> None:
    assert as_user(ALICE, lambda: ledger.append(team / "nodes", [evidence()])).is_ok
    assert stat.S_IMODE((team / "nodes").stat().st_mode) == 0o3770
    assert as_user(BOB, lambda: ledger.append(team / "nodes", [evidence("n2")])).is_ok
    assert len(ledger.read(team / "nodes")) == 2


def test_a_hostile_ledger_of_the_greatest_size_is_read_and_weighed_in_seconds(tmp_path: Path) -> None:
    lines = b"".join(render_line(NodeEvidence(f"n{n % 50}", "network", NOW, "w", "m", f"r{n % 3}", n, "f"))
                     for n in range(20_000))
    (tmp_path / "0-n0-2026-11.jsonl").write_bytes(lines[: 1 << 20])
    (tmp_path / "0-n1-2026-11.jsonl").write_bytes(lines[-(1 << 20):])
    start_s = time.process_time()
    found = ledger.parse_raw(json.loads(json.dumps(ledger.read_raw(tmp_path))))
    assert len(standings(found, NOW, WEEK_S)) == 50
    assert time.process_time() - start_s < 5.0


@pytest.mark.root
def test_a_frozen_ledger_is_late_and_not_empty(fuse_mount: FuseMount) -> None:
    folder = fuse_mount.path / "nodes"
    ledger.append(folder, [evidence()])
    fuse_mount.freeze()
    for act in (lambda: ledger.read_raw(folder), lambda: [[str(ledger.append(folder, [evidence(attempt=2)]))]]):
        answer = run_in_child(act, 0.5)
        assert answer.late and answer.took_s < 60.0
    fuse_mount.thaw()
    assert ledger.read(folder)[0].node == "n1"


def test_how_long_nodes_were_used_stands_beside_the_evidence(tmp_path: Path) -> None:
    use = NodeUse(("n1", "n2"), round(NOW, 3), 60.0, "1a2b3c4d", 1, "big")
    ledger.append(tmp_path / "nodes", [evidence()])
    for _ in range(2):   # a leader that died after its write writes it again
        ledger.append_use(tmp_path / "nodes", use)
    raw = ledger.read_raw(tmp_path / "nodes")
    assert ledger.parse_uses(raw) == (use,) and [one.node for one in ledger.parse_raw(raw)] == ["n1"]


def test_of_a_ledger_full_of_uses_the_newest_of_each_owner_are_read_and_no_line_names_nodes_without_end() -> None:
    names = tuple(f"n{n}" for n in range(1024))
    line = render_use(NodeUse(names, 9999.0, 60.0, "run", 1))
    many = b"".join(line.replace(b"9999.0", b"%d.0" % t) for t in range(1000))
    bomb = json.dumps({"v": 1, "t": 1, "used": ",".join(["n[0-65000]"] * 150), "used_s": 9, "run": "r", "attempt": 1,
                       "cluster": ""}, separators=(",", ":"))
    one = render_use(NodeUse(("n1",), 5.0, 60.0, "run2", 1))
    uses = ledger.parse_uses([["ann", many.decode()], ["eve", bomb], ["bob", one.decode()]])
    assert sum(len(use.nodes) for use in uses) < ledger.MOST_PLACES
    assert [use.t for use in uses[:2]] == [999.0, 998.0] and uses[-1].run == "run2"


def test_lines_of_use_with_whole_clusters_of_nodes_are_judged_before_a_leader_is_late(tmp_path: Path) -> None:
    folder, now = tmp_path / "nodes", time.time()
    ledger.append(folder, [evidence()])
    lines = "".join(json.dumps({"v": 1, "t": now - number, "used": f"{name}[0-57000]", "used_s": 1e5 + number,
                                "run": "r", "attempt": number, "cluster": ""}) + "\n"
                    for number, name in enumerate(["n37", "n9999", *(f"m{number}x" for number in range(300))]))
    (file,) = folder.iterdir()
    with file.open("a") as stream:
        stream.write(lines)
    answer = run_in_child(lambda: ledger.read_judged(folder, (), "", now), 60.0)
    assert answer.value is not None, answer
    assert [NodeEvidence(*fields).node for fields in answer.value] == [evidence().node]
    uses = ledger.parse_uses(ledger.read_raw(folder))
    assert 0 < sum(len(use.nodes) for use in uses) < ledger.MOST_PLACES + 57_001
