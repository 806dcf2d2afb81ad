"""Which file a line goes to when a log is split by ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.core.logview.rankfile import OTHER, rank_file

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
