"""A whole checkpoint of each format is found; cut short anywhere it is not, and the older one is."""

from __future__ import annotations

import os
import re

import pytest

from safelaunch.checkpoints.latest import FORMATS
from tests.pure.checkpoints.checkpoint_files import (
    DictFolder,
    dcp_folder,
    deepspeed_folder,
    latest_complete,
    megatron_dist_folder,
    megatron_folder,
    old_torch_file,
    torch_file,
)
from tests.tables import each

LONG = os.environ.get("SAFELAUNCH_LONG") == "1"

# What is there, (newest path, its files), (older path); steps 9 and 10 would compare wrongly as text.
TREES: dict[str, tuple[str, dict[str, bytes], str, str]] = {
    "torch": ("torch", {"step_9.pt": torch_file(), "step_10.pt": torch_file()}, "step_10.pt", "step_9.pt"),
    "torch, before 1.6": (
        "torch", {"step_9.pt": old_torch_file(), "step_10.pt": old_torch_file()}, "step_10.pt", "step_9.pt",
    ),
    "torch, a file per rank": (
        "torch",
        {f"step_{step}_rank{rank}.pt": torch_file() for step in (9, 10) for rank in (0, 1)},
        "step_10_rank0.pt", "step_9_rank0.pt",
    ),
    "torch, a folder per step": (
        "torch",
        {f"checkpoint-{step}/{name}": torch_file() for step in (9, 10) for name in ("model.pt", "optimizer.pt")},
        "checkpoint-10", "checkpoint-9",
    ),
    "dcp": ("dcp", dcp_folder("step-9") | dcp_folder("step-10"), "step-10", "step-9"),
    "megatron": (
        "megatron",
        megatron_folder("iter_0000009") | megatron_folder("iter_0000010")
        | {"latest_checkpointed_iteration.txt": b"10"},
        "iter_0000010", "iter_0000009",
    ),
    "megatron torch_dist": (
        "megatron",
        megatron_dist_folder("iter_0000009") | megatron_dist_folder("iter_0000010")
        | {"latest_checkpointed_iteration.txt": b"10"},
        "iter_0000010", "iter_0000009",
    ),
    "deepspeed": (
        "deepspeed",
        deepspeed_folder("global_step9") | deepspeed_folder("global_step10") | {"latest": b"global_step10"},
        "global_step10", "global_step9",
    ),
    "deepspeed in checkpoint-N": (
        "deepspeed",
        deepspeed_folder("checkpoint-9/global_step9") | deepspeed_folder("checkpoint-10/global_step10")
        | {"checkpoint-9/latest": b"global_step9", "checkpoint-10/latest": b"global_step10"},
        "checkpoint-10", "checkpoint-9",
    ),
}  # fmt: skip
every_tree = pytest.mark.parametrize("tree", TREES.values(), ids=TREES.keys())


@every_tree
def test_the_newest_whole_checkpoint_is_chosen_by_its_number(tree: tuple[str, dict[str, bytes], str, str]) -> None:
    format, files, newest, older = tree
    found = latest_complete(DictFolder(files), format)
    assert found.best is not None
    assert (found.best.path, found.best.step, found.best.format) == (newest, 10, format)
    assert [one.path for one in found.older] == [older]
    assert found.skipped == ()


@every_tree
def test_auto_finds_the_same_and_says_which_format(tree: tuple[str, dict[str, bytes], str, str]) -> None:
    format, files, _, _ = tree
    assert latest_complete(DictFolder(files), "auto") == latest_complete(DictFolder(files), format)


@every_tree
@pytest.mark.parametrize("asked", ["auto", "its own format"])
def test_a_file_cut_short_at_any_byte_is_never_chosen_and_the_older_one_is(
    tree: tuple[str, dict[str, bytes], str, str], asked: str
) -> None:
    format, files, newest, older = tree
    for name, content in files.items():
        if not name.startswith(newest.removesuffix("_rank0.pt")):
            continue
        # Each seventh byte, and each near an end: all of them with SAFELAUNCH_LONG=1. `auto` judges with the same code.
        every = range(len(content))
        for length in every[::37] if asked == "auto" else every if LONG else sorted(
                {*every[::7], *every[:20], *every[-40:]}):
            found = latest_complete(DictFolder(files | {name: content[:length]}), "auto" if asked == "auto" else format)
            assert found.best is not None and found.best.path == older, (name, length, found)
            assert found.skipped and all(one.reason for one in found.skipped)


@every_tree
def test_a_file_that_is_missing_is_never_overlooked(tree: tuple[str, dict[str, bytes], str, str]) -> None:
    format, files, newest, older = tree
    for gone in files:
        # A last rank that is missing alone looks like a smaller job, and so does a folder with one file less.
        undecidable = gone.startswith(("step_10", "checkpoint-10/model.pt", "checkpoint-10/optimizer.pt"))
        if not gone.startswith(newest) or undecidable or gone.endswith(("common.pt", "metadata.json")):
            continue
        found = latest_complete(DictFolder({name: files[name] for name in files if name != gone}), format)
        assert found.best is not None and found.best.path == older, gone


@every_tree
def test_what_cannot_be_read_is_skipped_with_the_reason(tree: tuple[str, dict[str, bytes], str, str]) -> None:
    format, files, newest, older = tree
    first = next(name for name in files if name.startswith(newest) and name.endswith((".pt", ".metadata")))
    found = latest_complete(DictFolder(files, unreadable=[first]), format)
    assert found.best is not None and found.best.path == older
    assert [one.reason for one in found.skipped] == ["cannot be read: Permission denied"]


@each("format", ["auto", *FORMATS])
def test_an_empty_folder_holds_nothing(format: str) -> None:
    found = latest_complete(DictFolder({}), format)
    assert (found.best, found.older, found.skipped) == (None, (), ())


def test_the_newest_of_two_formats_in_one_folder_wins() -> None:
    found = latest_complete(DictFolder(dcp_folder("step-100") | {"step_200.pt": torch_file()}), "auto")
    assert [(one.path, one.format) for one in (found.best, *found.older) if one] == [
        ("step_200.pt", "torch"), ("step-100", "dcp"),
    ]  # fmt: skip


def test_files_inside_an_unfinished_folder_are_never_taken_for_torch_checkpoints() -> None:
    found = latest_complete(DictFolder(deepspeed_folder("global_step10")), "auto")
    assert found.best is None
    assert [one.reason for one in found.skipped] == ["no latest: no save was ever finished"]


def test_judging_ends_after_a_few_whole_ones() -> None:
    found = latest_complete(DictFolder({f"step_{step}.pt": torch_file() for step in range(1, 50)}), "torch")
    assert [one.step for one in found.older] == [48, 47, 46, 45]


@each(
    ("format", "pattern", "says"),
    [
        ("zip", None, 'format "zip" is unknown'),
        ("pattern", None, "needs a pattern"),
        ("torch", "step_{step}.pt", "takes no pattern"),
        ("pattern", "step_{iter}.pt", "{iter} is unknown"),
        ("pattern", "../{step}.pt", "below the folder"),
    ],
)
def test_a_wrong_ask_is_a_value_error(format: str, pattern: str | None, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        latest_complete(DictFolder({}), format, pattern)
