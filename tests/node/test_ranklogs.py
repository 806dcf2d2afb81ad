"""Which file a line goes to when a log is split by ranks, and the files that the pump keeps of a living attempt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.node import ranklogs
from safelaunch.node.ranklogs import OTHER, PREFIX, LogSplit, RankFiles, rank_file
from safelaunch.verbs.logs import rankfold

NODES = ("n1", "n0")   # Slurm's order is not the names'


@pytest.mark.parametrize(("line", "nodes", "per_node", "file"), [
    (b"[n0:1]: loss 3", NODES, 4, "rank-5-n0.log"),
    (b"[n1:3]:", NODES, 4, "rank-3-n1.log"),
    (b"[n1:4]: the node has four", NODES, 4, OTHER),
    (b"[n0:5]: loss 3", NODES, None, "rank-5-n0.log"),
    (b"[n9:0]: of no node", NODES, 4, OTHER),
    (b"[n9:0]: nobody knows the nodes", (), 4, "local-rank-0-n9.log"),
    (b"[gpu-1.cluster:7]: as above", (), None, "rank-7-gpu-1.cluster.log"),
    (b"[../../etc/passwd:0]: x", (), None, OTHER),
    (b"[..:0]: x", (), None, OTHER),
    (b"[-rf:0]: x", (), None, OTHER),
    (b"[" + b"n" * 255 + b":0]: x", (), None, OTHER),
    (b"srun: error", NODES, 4, OTHER),
    (b"", NODES, 4, OTHER),
])
def test_a_line_goes_to_the_file_of_its_global_rank_and_others_to_one(
    line: bytes, nodes: tuple[str, ...], per_node: int | None, file: str) -> None:
    assert rank_file(line, nodes, per_node) == file


@given(st.binary(max_size=30), st.sampled_from([(), ("n0",)]), st.sampled_from([None, 1, 8]))
def test_no_line_names_a_file_of_another_folder(host: bytes, nodes: tuple[str, ...], per_node: int | None) -> None:
    name = rank_file(b"[" + host + b":0]: x", nodes, per_node)
    assert "/" not in name and "\0" not in name and name.endswith(".log") and not name.startswith(".")


def test_the_prefix_is_the_one_that_all_other_readers_know() -> None:
    assert PREFIX.pattern == rankfold.PREFIX.pattern


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_lines_wait_for_a_moment_and_come_whole_and_in_order(tmp_path: Path) -> None:
    files = RankFiles(str(tmp_path), NODES, 2)
    files.feed(b"start\n[n0:1]: one\n[n1:0]: ze")
    files.write_if_due()
    files.feed(b"ro\n[n0:1]: two\n[n0:1]: torn")
    files.write_if_due()
    assert contents(tmp_path) == {OTHER: b"start\n", "rank-3-n0.log": b"[n0:1]: one\n"}, "the next write is later"
    files.end()
    assert contents(tmp_path) == {OTHER: b"start\n", "rank-0-n1.log": b"[n1:0]: zero\n",
                                  "rank-3-n0.log": b"[n0:1]: one\n[n0:1]: two\n[n0:1]: torn\n"}
    assert not any(path.stat().st_mode & 0o077 for path in tmp_path.iterdir())


def test_a_thousand_ranks_are_written_every_ten_seconds_by_one_file_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, clock_s = RankFiles(str(tmp_path), (), None), [100.0]
    monkeypatch.setattr("safelaunch.node.ranklogs.time.monotonic", lambda: clock_s[-1])
    line = b"".join(b"[n0:%d]: x\n" % rank for rank in range(1000))
    for now_s in (100.0, 109.9, 110.1):
        clock_s.append(now_s)
        files.feed(line)
        files.write_if_due()
        assert len(contents(tmp_path)) == 1000
    assert contents(tmp_path)["rank-7-n0.log"] == b"[n0:7]: x\n" * 3


def test_what_waits_and_what_has_no_end_takes_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranklogs, "HELD_BYTES", 1000)
    monkeypatch.setattr(ranklogs, "MOST_LINE", 100)
    files = RankFiles(str(tmp_path), (), None)
    files.feed(b"\n" * 20)
    assert contents(tmp_path)[OTHER], "empty lines count, too"
    files.feed(b"[n0:0]: " + b"x" * 200)
    files.end()
    assert len(contents(tmp_path)["rank-0-n0.log"]) == 209


def facts_of(tmp_path: Path, log: bytes) -> tuple[str, str, str]:
    """What LogSplit is made of, for an attempt on n0 whose log is there already."""
    (tmp_path / "facts").write_text(json.dumps({"nodes": ["n0"], "rank_logs": None}))
    (tmp_path / "main.log").write_bytes(log)
    return str(tmp_path / "facts"), str(tmp_path / "main.log"), str(tmp_path / "stopped")


def test_a_pump_after_one_that_was_killed_writes_them_anew_for_the_group_that_reads_the_log(tmp_path: Path) -> None:
    tmp_path.chmod(0o2750)
    facts = facts_of(tmp_path, b"[n0:0]: one\n[n0:1]: two\n[n0:0]: three\n")
    for size in (12, 24):
        split = LogSplit(*facts)
        assert split.catch_up(size)
        split.end()
        (tmp_path / "stopped").unlink()
    ranks = tmp_path / "ranks"
    assert contents(ranks) == {"rank-0-n0.log": b"[n0:0]: one\n", "rank-1-n0.log": b"[n0:1]: two\n"}
    assert [path.stat().st_mode & 0o7777 for path in (ranks, ranks / "rank-0-n0.log")] == [0o2750, 0o640]


def test_a_pump_after_one_that_was_told_to_leave_goes_on(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, b"[n0:0]: one\n[n0:0]: two\n")
    first = LogSplit(*facts)
    assert first.catch_up(12)
    first.end()
    (tmp_path / "ranks" / "rank-0-n0.log").write_bytes(b"as it was\n")
    second = LogSplit(*facts)
    second.feed(0, b"[n0:0]: one\n[n0:0]: two\n")
    second.end()
    assert contents(tmp_path / "ranks") == {"rank-0-n0.log": b"as it was\n[n0:0]: two\n"}


def test_a_long_log_is_split_piece_by_piece_so_that_new_lines_reach_the_log_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranklogs, "READ_BYTES", 12)
    split = LogSplit(*facts_of(tmp_path, b"[n0:0]: one\n[n0:0]: two\n[n0:1]: new\n"))
    assert not split.catch_up(24) and split.at == 12
    split.feed(24, b"[n0:1]: new\n")
    assert not split.catch_up(36) and split.catch_up(36)
    assert split.catch_up(50), "of a log that was cut nothing is waited for"
    split.end()
    assert contents(tmp_path / "ranks") == {"rank-0-n0.log": b"[n0:0]: one\n[n0:0]: two\n",
                                            "rank-1-n0.log": b"[n0:1]: new\n"}
