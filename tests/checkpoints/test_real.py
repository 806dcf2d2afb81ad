"""Checkpoints that real packages have written, damaged in every way: which is chosen then, and what is said."""

from __future__ import annotations

import fnmatch
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safelaunch.checkpoints.model import FoundCheckpoints
from tests.checkpoints.real import LAYOUTS, files, parts
from tests.pure.checkpoints.checkpoint_files import DictFolder, latest_complete
from tests.tables import each

every_layout = pytest.mark.parametrize("layout", LAYOUTS)
EVERY_PART = [(layout, name) for layout in LAYOUTS for name in parts(layout)]
DAMAGES = ("cut", "zero", "zero tail", "missing", "swap")

# What no structure shows, as docs/checkpoints.md tells: (layout, file, damage) → why.
UNSEEN: dict[tuple[str, str, str], str] = {
    ("*", "*.safetensors", "zero tail"): "the format has no checksum",
    ("*", "*/generation_config.json", "missing"): "not every model has one",
    ("safetensors_sharded", "*/config.json", "missing"): "weights alone are a model, too",
    ("*", "*/training_args.bin", "missing"): "nothing is resumed from it",
    ("hf*", "*config.json", "swap"): "one JSON text is as good as another",
    ("safetensors_sharded", "*config.json", "swap"): "one JSON text is as good as another",
    ("deepspeed", "*/zero_pp_rank_1_*", "missing"): "fewer ranks are a smaller set",
    ("orbax", "*/d/*", "missing"): "the tree that names it is compressed",
    ("orbax", "*/d/*", "swap"): "the tree that names it is compressed",
    ("orbax", "*/ocdbt.process_0/manifest.ocdbt", "missing"): "the item's own manifest is enough",
    ("orbax", "*/ocdbt.process_0/manifest.ocdbt", "swap"): "it is a manifest as well",
    ("orbax", "*/default/manifest.ocdbt", "swap"): "it is a manifest as well",
    ("orbax", "*/commit_success.txt", "cut"): "that it is there is what it says",
    ("orbax", "*/commit_success.txt", "zero"): "that it is there is what it says",
    ("orbax", "*/commit_success.txt", "zero tail"): "that it is there is what it says",
    ("orbax", "*/commit_success.txt", "swap"): "that it is there is what it says",
    ("orbax", "*/default/commit_success.txt", "missing"): "the step has the mark as well",
}


def is_unseen(layout: str, name: str, damage: str) -> bool:
    return any(damage == what and fnmatch.fnmatch(layout, of) and fnmatch.fnmatch(name, file)
               for of, file, what in UNSEEN)


def found_in(tree: dict[str, bytes]) -> FoundCheckpoints:
    return latest_complete(DictFolder(tree), "auto")


def assert_the_older_is_chosen(layout: str, tree: dict[str, bytes], about: Any) -> str:
    """The reason that is given for the newest one."""
    found = found_in(tree)
    assert found.best is not None and found.best.path == LAYOUTS[layout].older, (about, found)
    said = [one.reason for one in found.skipped if one.path == LAYOUTS[layout].newest]
    if parts_of(tree, LAYOUTS[layout].newest):
        assert said, (about, found)
    return said[0] if said else ""


def parts_of(tree: dict[str, bytes], top: str) -> list[str]:
    return [name for name in tree if name == top or name.startswith(f"{top}/")]


@every_layout
def test_the_newest_whole_one_is_chosen_as_a_folder_or_as_its_only_file(layout: str) -> None:
    found = found_in(files(layout))
    wanted = LAYOUTS[layout]
    assert found.best is not None
    assert (found.best.path, found.best.step, found.best.format) == (wanted.newest, 4, wanted.format)
    assert [(one.path, one.step) for one in found.older] == [(wanted.older, 2)]
    assert found.skipped == ()


@every_layout
def test_the_layouts_own_format_finds_the_same_as_auto(layout: str) -> None:
    assert latest_complete(DictFolder(files(layout)), LAYOUTS[layout].format) == found_in(files(layout))


@every_layout
def test_another_format_says_which_one_it_is(layout: str) -> None:
    asked = "nanotron"
    found = latest_complete(DictFolder(files(layout)), asked)
    assert found.best is None
    assert found.skipped[0].reason == f"of format {LAYOUTS[layout].format}, and resume.format says {asked}"


# layout → damage → what is said of the newest; the older one is chosen each time.
MATRIX: list[tuple[str, str, str, str]] = [
    ("torch_files", "step_4.pt", "cut", "truncated: no zip end record in the last bytes of 2862"),
    ("torch_files", "step_4.pt", "empty", "empty"),
    ("torch_files", "step_4.pt", "half-written", "truncated: no zip end record in the last bytes of 2862"),
    ("dcp", "step-4/__1_0.distcp", "cut", "__1_0.distcp has 12140 of 24281 bytes"),
    ("dcp", "step-4/__1_0.distcp", "missing", "__1_0.distcp is missing"),
    ("dcp", "step-4/.metadata", "empty", ".metadata: empty"),
    ("dcp", "step-4/.metadata", "half-written", "no .metadata: the save has not finished"),
    ("megatron", "iter_0000004/__0_0.distcp", "cut", "__0_0.distcp has 788 of 1577 bytes"),
    ("megatron", "iter_0000004/common.pt", "missing", "no common.pt"),
    ("megatron", "iter_0000004/metadata.json", "empty", "metadata.json: empty"),
    ("megatron", "iter_0000004/metadata.json", "half-written",
     "no metadata.json, which is written last: the save has not finished"),
    ("deepspeed", "global_step4/mp_rank_00_model_states.pt", "cut",
     "global_step4/mp_rank_00_model_states.pt: truncated: no zip end record in the last bytes of 1420"),
    ("deepspeed", "global_step4/mp_rank_00_model_states.pt", "missing", "no model states"),
    ("deepspeed", "global_step4/mp_rank_00_model_states.pt", "empty",
     "global_step4/mp_rank_00_model_states.pt: empty"),
    ("deepspeed", "latest", "half-written", "newer than global_step2 in latest: its save has not finished"),
    ("hf", "checkpoint-4/model.safetensors", "cut", "model.safetensors: truncated: 2032 of 4064 bytes"),
    ("hf", "checkpoint-4/model.safetensors", "missing",
     "no weights: neither model nor adapter_model, in safetensors or .bin"),
    ("hf", "checkpoint-4/optimizer.pt", "missing", "no optimizer, although other states of the training are there"),
    ("hf", "checkpoint-4/trainer_state.json", "empty", "trainer_state.json: empty"),
    ("hf", "checkpoint-4/trainer_state.json", "half-written",
     "no trainer_state.json, which is written last: the save has not finished"),
    ("hf_sharded", "checkpoint-4/model-00004-of-00004.safetensors", "missing",
     "model-00004-of-00004.safetensors is missing"),
    ("hf_sharded", "checkpoint-4/model.safetensors.index.json", "missing",
     "no model.safetensors.index.json: the save has not finished"),
    ("hf_peft", "checkpoint-4/adapter_config.json", "missing", "no adapter_config.json"),
    ("accelerate", "step_4/optimizer.bin", "cut",
     "optimizer.bin: truncated: no zip end record in the last bytes of 2321"),
    ("accelerate", "step_4/optimizer.bin", "missing", "no optimizer.bin, although scheduler.bin is there"),
    ("accelerate", "step_4/model.safetensors", "empty", "model.safetensors: empty"),
    ("accelerate", "step_4/random_states_0.pkl", "half-written",
     "no random_states_0.pkl, which is written last: the save has not finished"),
    ("safetensors", "model_step_4.safetensors", "cut",
     "truncated: its header needs byte 288 of a file of 190"),
    ("safetensors", "model_step_4.safetensors", "empty", "empty"),
    ("safetensors", "model_step_4.safetensors", "half-written", "truncated: 379 of 380 bytes"),
    ("lightning", "epoch=0-step=4.ckpt", "cut", "truncated: no zip end record in the last bytes of 3928"),
    ("lightning", "epoch=0-step=4.ckpt", "empty", "empty"),
    ("lightning_sharded", "epoch=0-step=4.ckpt/__0_0.distcp", "missing", "__0_0.distcp is missing"),
    ("lightning_sharded", "epoch=0-step=4.ckpt/meta.pt", "half-written",
     "no meta.pt, which is written last: the save has not finished"),
    ("orbax", "4/default/manifest.ocdbt", "cut",
     "default/manifest.ocdbt: truncated: it needs byte 114 of a file of 57"),
    ("orbax", "4/default/manifest.ocdbt", "missing", "default/no manifest.ocdbt"),
    ("orbax", "4/_CHECKPOINT_METADATA", "empty", "_CHECKPOINT_METADATA: empty"),
    ("orbax", "4/commit_success.txt", "half-written",
     "no commit_success.txt, which the checkpoints beside it have: the save has not finished"),
]


def with_damage(layout: str, name: str, damage: str) -> dict[str, bytes]:
    """The layout's files after a row's damage to the newest one."""
    tree = dict(files(layout))
    if damage == "cut":
        tree[name] = tree[name][: len(tree[name]) // 2]
    elif damage == "empty":
        tree[name] = b""
    elif name == "latest":   # DeepSpeed's word of the older one, while the newer is being written
        tree[name] = b"global_step2"
    elif damage == "missing" or "/" in name:   # half-written: the file that is written last is not there yet
        del tree[name]
    else:
        tree[name] = tree[name][:-1] if layout == "safetensors" else tree[name][: len(tree[name]) // 2]
    return tree


@each(("layout", "name", "damage", "says"), MATRIX,
                         ids=[f"{layout}: {name.rpartition('/')[2]} {damage}" for layout, name, damage, _ in MATRIX])
def test_a_damaged_checkpoint_is_skipped_with_its_reason_and_the_older_one_is_chosen(
    layout: str, name: str, damage: str, says: str
) -> None:
    assert assert_the_older_is_chosen(layout, with_damage(layout, name, damage), damage) == says


@every_layout
def test_a_newer_one_of_which_only_the_first_files_are_written_is_never_chosen(layout: str) -> None:
    wanted = LAYOUTS[layout]
    tree = files(layout)
    begun_as = wanted.newest.replace("4", "6") + (".orbax-checkpoint-tmp-17" if layout == "orbax" else "")
    begun = {name.replace(wanted.newest, begun_as): tree[name] for name in parts(layout)}
    for count in range(1, len(begun)):
        written = dict(list(begun.items())[:count])
        if layout == "safetensors_sharded" and "step_6/model.safetensors.index.json" in written:
            continue   # a model's folder is whole with its weights
        found = found_in(tree | written | ({"latest": b"global_step4"} if layout == "deepspeed" else {}))
        assert found.best is not None and found.best.path == wanted.newest, (count, found)


@every_layout
def test_an_empty_folder_that_is_named_after_a_step_is_said(layout: str) -> None:
    class WithEmpty(DictFolder):
        def names(self, path: str) -> Any:
            return () if path == "checkpoint-9" else [*super().names(path), *([] if path else ["checkpoint-9"])]

        def is_dir(self, path: str) -> bool:
            return path == "checkpoint-9" or super().is_dir(path)

    found = latest_complete(WithEmpty(files(layout)), "auto")
    assert found.best is not None and found.best.path == LAYOUTS[layout].newest
    assert [(one.path, one.reason) for one in found.skipped] == [("checkpoint-9", "empty folder")]


# Of a tree node of OCDBT, and of a frame of zstd.
PARTS = (bytes.fromhex("0cdb20de"), bytes.fromhex("28b52ffd"))


def damaged(layout: str, name: str, damage: str, at: float, other: str) -> dict[str, bytes] | None:
    """The layout's files after the damage; None when it changes nothing that counts."""
    tree = dict(files(layout))
    before = tree[name]
    place = int(at * len(before))
    if damage == "missing":
        del tree[name]
        return tree
    if damage == "swap":
        tree[name], tree[other] = tree[other], before
    else:
        tree[name] = {"cut": before[:place], "zero": bytes(len(before)),
                      "zero tail": before[:place] + bytes(len(before) - place)}[damage]
    after = tree[name]
    if damage == "cut" and layout == "orbax" and before.startswith(PARTS, place) and place:
        return None   # a cut between two values shows nowhere (checkpoints/formats/orbax.py)
    if after == before or (name.endswith(("json", "METADATA")) and reads_alike(before, after)):
        return None
    return tree


def reads_alike(before: bytes, after: bytes) -> bool:
    """Whether a JSON text has lost no more than the line's end behind it."""
    try:
        return bool(json.loads(before) == json.loads(after))
    except ValueError:
        return False


@settings(max_examples=200, deadline=None)
@given(part=st.sampled_from(EVERY_PART), damage=st.sampled_from(DAMAGES),
       at=st.floats(0, 1, exclude_max=True), data=st.data())
def test_a_file_that_is_cut_swapped_zeroed_or_lost_never_counts_as_complete(
    part: tuple[str, str], damage: str, at: float, data: st.DataObject
) -> None:
    layout, name = part
    other = data.draw(st.sampled_from(parts(layout)))
    pair = {name, other} if damage == "swap" else {name}
    tree = damaged(layout, name, damage, at, other)
    if tree is None or any(is_unseen(layout, one, damage) for one in pair):
        return
    assert_the_older_is_chosen(layout, tree, (name, damage, at, other))


def test_zeros_behind_the_first_bytes_of_a_part_of_orbax_are_seen() -> None:
    name = "4/default/ocdbt.process_0/d/47454e68cd4fe1ce0ac30933e57110c2"
    before = files("orbax")[name]
    for place in range(12):
        assert_the_older_is_chosen("orbax", {**files("orbax"), name: before[:place].ljust(len(before), b"\0")}, place)


def test_a_cut_within_the_first_bytes_of_a_part_of_orbax_is_seen() -> None:
    name = "4/default/ocdbt.process_0/d/a5148f3401ffb4f71a4bffd8549ba872"
    before = files("orbax")[name]
    second = before.index(PARTS[0], 1)
    for place in range(second + 1, second + 12):
        assert_the_older_is_chosen("orbax", {**files("orbax"), name: before[:place]}, place)


@each("part", EVERY_PART, ids=["/".join(part) for part in EVERY_PART])
def test_a_file_that_is_lost_emptied_or_full_of_zeros_never_counts(part: tuple[str, str]) -> None:
    layout, name = part
    for damage in ("missing", "zero"):
        if not is_unseen(layout, name, damage):
            tree = damaged(layout, name, damage, 0, name)
            assert tree is not None
            assert_the_older_is_chosen(layout, tree, (name, damage))
    if not is_unseen(layout, name, "cut"):
        assert_the_older_is_chosen(layout, files(layout) | {name: b""}, (name, "empty"))


@each("row", UNSEEN, ids=[" ".join(row) for row in UNSEEN])
def test_what_is_said_to_be_unseen_is_indeed_unseen(row: tuple[str, str, str]) -> None:
    # If structure comes to show one of these, its row here and in the document has to go.
    of, file, damage = row
    for layout, name in EVERY_PART:
        if fnmatch.fnmatch(layout, of) and fnmatch.fnmatch(name, file):
            for other in parts(layout) if damage == "swap" else [name]:
                tree = damaged(layout, name, damage, 0.95, other)
                found = found_in(tree) if tree is not None and (damage != "swap" or other != name) else None
                if found is not None and found.best is not None and found.best.path == LAYOUTS[layout].newest:
                    return
    pytest.fail(f"structure shows {row}")
