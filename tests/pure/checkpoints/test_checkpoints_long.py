"""Pickles that are too long to be looked through: unknown, and no reason to wait for the others."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safelaunch.checkpoints import inside
from safelaunch.checkpoints.formats import torchfile
from safelaunch.checkpoints.model import Candidate, FoundCheckpoints
from safelaunch.checkpoints.pickled import SEARCH_OPS, Allowance, LongPickle, PickleFile
from tests.pure.checkpoints.checkpoint_files import (
    DictFolder,
    dcp_folder,
    dcp_metadata,
    latest_complete,
    old_torch_file,
    torch_file,
)

OPS = SEARCH_OPS // 10   # a search's allowance in these tests
PUMPED = {
    "nothing, pushed and popped": b"\x80\x02" + b"N0" * (OPS // 2) + b"N.",
    "numbers in lines": b"\x80\x02" + b"I1\n" * (OPS // 4) + b".",
    "remembered texts": b"\x80\x04" + b"\x8c\x07storage\x94" * (OPS // 6) + b".",
    "pickles in a row": b"\x80\x02N." * (OPS // 4),
    "a long pickle of the old form": old_torch_file()[:14] + b"\x80\x02" + b"K\x01" * (OPS // 2) + b".",
}


@pytest.mark.parametrize("content", PUMPED.values(), ids=PUMPED.keys())
def test_a_set_of_pumped_files_is_unknown_and_the_good_one_behind_them_is_found(content: bytes) -> None:
    folder = DictFolder({"step_1.pt": old_torch_file()} | {f"step_{step}.pt": content for step in range(100, 120)})
    folder.allowance = Allowance(OPS)
    found = latest_complete(folder, "auto")
    assert found.best is not None and found.best.path == "step_1.pt"
    assert [one.reason for one in found.skipped] == [torchfile.UNKNOWN] * 20
    assert folder.allowance.left > 0


def test_reading_costs_too() -> None:
    content = b"\x80\x03" + (b"B" + (1 << 18).to_bytes(4, "little") + bytes(1 << 18)) * 40 + b"."
    allowance = Allowance(40 * 200)
    with pytest.raises(LongPickle):
        PickleFile(lambda at, length: content[at : at + length], len(content), allowance).end_of(0)


def test_an_old_file_of_ten_thousand_tensors_is_judged() -> None:
    state = {f"model.layers.{number}.attention.weight": {"step": 5, "moments": [0.9, 0.99]} for number in range(10_000)}
    content = pickle.dumps(state, protocol=2)
    assert torchfile.judge_file(DictFolder({"a.pt": content}), "a.pt") is None
    reason = torchfile.judge_file(DictFolder({"a.pt": content[:-1]}), "a.pt")
    assert reason is not None and reason.startswith("truncated")


def test_what_a_file_spends_is_missing_for_the_next_one() -> None:
    whole = Allowance(8000)
    content = b"\x80\x02" + b"N0" * 100 + b"N."
    assert PickleFile(lambda at, length: content[at : at + length], len(content), whole.share()).end_of(0) == 204
    assert 203 <= 8000 - whole.left <= 203 + 256


def long_dcp_folder(path: str) -> dict[str, bytes]:
    """A whole one whose .metadata goes on behind what is looked through: one file is named late."""
    shard = torch_file(b"w" * 100)
    shards = [(f"__{number // 600}_0.distcp", 0, len(shard)) for number in range(6_000)]
    files = {f"{path}/{name}": shard for name, *_ in shards}
    return files | {f"{path}/.metadata": dcp_metadata(shards)}


def looked_at(files: dict[str, bytes]) -> FoundCheckpoints:
    folder = DictFolder(files)
    folder.allowance = Allowance(OPS)
    return latest_complete(folder, "dcp")


@pytest.mark.parametrize("harm", [lambda shard: shard[:-1], lambda shard: bytes(len(shard))], ids=["cut", "zeros"])
def test_files_that_a_long_metadata_names_late_are_looked_at_by_their_ends(harm) -> None:  # type: ignore[no-untyped-def]
    files = dcp_folder("step-9") | long_dcp_folder("step-10")
    found = looked_at(files)
    assert found.best is not None and found.best.path == "step-10"
    last = "step-10/__9_0.distcp"
    found = looked_at(files | {last: harm(files[last])})
    assert found.best is not None and found.best.path == "step-9"


def test_a_long_metadata_that_is_cut_is_no_whole_one() -> None:
    files = dcp_folder("step-9") | long_dcp_folder("step-10")
    cut = files["step-10/.metadata"][:-1]
    found = looked_at(files | {"step-10/.metadata": cut})
    assert found.best is not None and found.best.path == "step-9"


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=60), at=st.integers(0, 90))
def test_no_bytes_make_the_search_for_a_step_fail(content: bytes, at: int) -> None:
    whole = pickle.dumps({"model": {"w": [1.5, None]}, "epoch": 3, "step": 700, "tail": (1, {"a"})}, protocol=4)
    torn = whole[:at] + content + whole[at + len(content):]
    told = inside.read(DictFolder({"a.pt": torn}), Candidate("a.pt", None, "torch", ("a.pt",)))
    assert told.step is None or told.step >= 0
