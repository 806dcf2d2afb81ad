"""What each format says with its own marks: trackers, ranks, names, patterns."""

from __future__ import annotations

import io
import pickle
import zipfile

import pytest

from safelaunch.checkpoints import names
from safelaunch.checkpoints.formats.torchfile import judge_file
from safelaunch.checkpoints.model import FoundCheckpoints
from tests.pure.checkpoints.checkpoint_files import (
    DictFolder,
    dcp_folder,
    dcp_metadata,
    deepspeed_folder,
    latest_complete,
    megatron_dist_folder,
    megatron_folder,
    old_torch_file,
    torch_file,
)
from tests.tables import each

TRACKER = "latest_checkpointed_iteration.txt"


def reasons(found: FoundCheckpoints) -> dict[str, str]:
    return {one.path: one.reason for one in found.skipped}


def best(found: FoundCheckpoints) -> str | None:
    return found.best.path if found.best else None


@each(
    ("name", "step"),
    [
        ("step_00000012.pt", 12),
        ("epoch=3-step=1200-v1.ckpt", 1200),
        ("model_0000100.pth", 100),
        ("ckpt-7-loss-0.52.pt", 7),
        ("global_step100", 100),
        ("iter_0000100", 100),
        ("step_5_rank3.pt", 5),
        ("5_mp_rank_03.pt", 5),
        ("v2_ckpt_100.pt", 100),
        ("10000_steps.zip", 10000),
        ("modelEpoch10.pt", 10),
        ("gpt2-124M_step_100.pt", 100),
        ("swin_base_patch4_window7_224_ep_9.pth", 9),
        ("model_100k.pt", 100_000),
        ("mylora-000005", 5),
        ("val_loss_12_step_100.pt", 100),
        *((name, None) for name in (
            "last.ckpt", "resnet50_best.pth", "resnet50.pth", "vit_b_16_last.pth", "vit_g_14.pth", "densenet_121.pth",
            "llama-7b", "model_v2.pt", "fold_0", "world_size_2", "model_world_size_2_rank_0.pt", "shard_3.pt",
            "model-00001-of-00002.bin", "model_20261128_103000.pt", "run_1764288000.pt", "best_model_95.pth",
            "imagenet21k.pth", "wrn_28_10.pth", "G_2333333.pth", "mp_rank_00_001", "loss_12.pt",
            "consolidated.00.pth", "resnet50-0676ba61.pth", "model_1e6.pt", "lr_5e-5.pt", "yolov8n.pt",
            "rng_state_3.pth", "20261128")),
        ("epoch_3_lr1e-4.pt", 3),
        ("step-100-of-1000.pt", 100),
        ("D_A_100.pth", 100),
        ("ep3-ba100-rank0.pt", 100),
    ],
)
def test_the_step_is_read_from_the_name(name: str, step: int | None) -> None:
    assert names.step_in(name) == step


@each(
    "name", ["step_9.pt.tmp", "tmp_step_9.pt", "step_9.tmp.pt", ".step_9.pt", "step_9.pt.part", "step_9.pt~"]
)
def test_a_temporary_name_is_skipped_although_the_file_is_whole(name: str) -> None:
    found = latest_complete(DictFolder({"step_8.pt": torch_file(), name: torch_file()}), "torch")
    assert best(found) == "step_8.pt"
    assert reasons(found) == {name: names.UNFINISHED}


@each(
    ("files", "order"),
    [
        (("last.pt", "step_8.pt"), ("step_8.pt", "last.pt")),
        (("step_8.pt", "last.pt"), ("last.pt", "step_8.pt")),
        (("step_8.pt", "model.pt"), ("model.pt", "step_8.pt")),
        (("mine_8.pt", "mine.pt"), ("mine.pt", "mine_8.pt")),
        (("step_8.pt", "older.pt", "cache.pt"), ("step_8.pt", "cache.pt", "older.pt")),
        (("step_8.pt", "optimizer.pt"), ("step_8.pt", "optimizer.pt")),
        (("step_8.pt", "best.pt", "model_best.pt"), ("step_8.pt", "model_best.pt", "best.pt")),
        (("best.pt", "last.pt"), ("last.pt", "best.pt")),
        (("last/model.pt", "best/model.pt"), ("last/model.pt", "best/model.pt")),
        (("model/step_8.pt", "ema/step_8.pt"), ("model/step_8.pt", "ema/step_8.pt")),
        (("ckpts/step_8.pt", "optimizer/step_8.pt"), ("ckpts/step_8.pt", "optimizer/step_8.pt")),
        (("last.pt", "best.pt"), ("last.pt", "best.pt")),
        (("best_step_8.pt", "step_8.pt"), ("step_8.pt", "best_step_8.pt")),
        (("step_8.pt", "best_step_9.pt"), ("best_step_9.pt", "step_8.pt")),
        (("model_9.pt", "other_epoch_3.pt"), ("other_epoch_3.pt", "model_9.pt")),
        (("other_epoch_3.pt", "model_9.pt"), ("model_9.pt", "other_epoch_3.pt")),
        (("a_epoch_9.pt", "b_epoch_3.pt"), ("b_epoch_3.pt", "a_epoch_9.pt")),
    ],
    ids=lambda names: " ".join(names),
)
def test_one_without_a_step_is_the_newest_if_it_changed_last_and_is_named_so(
    files: tuple[str, ...], order: tuple[str, ...]
) -> None:
    found = latest_complete(DictFolder(dict.fromkeys(files, torch_file())), "torch")
    assert (best(found), *(one.path for one in found.older)) == order


@each(
    ("name", "told", "step"),
    [
        ("epoch_9.pt", {"epoch": 8, "step": 4000}, 9),       # counted from 0
        ("epoch_9.pt", {"epoch": 9, "global_step": 4000}, 9),
        ("epoch_9.pt", {"epoch": 0, "step": 0}, 9),          # it does not count
        ("step_9.pt", {"step": 900}, 900),
        ("step_9.pt", {"epoch": 3}, 9),
        ("model_9.pt", {"epoch": 9, "step": 4000}, 9),
        ("model_9.pt", {"step": 4000}, 4000),
        ("last.pt", {"epoch": 29, "step": 0}, 29),
        ("last.pt", {"epoch": 29, "iteration": 4000}, 4000),
        ("last.pt", {"epoch": 0}, None),
        ("last.pt", {"last_epoch": 7, "total_steps": 8}, None),
    ],
)
def test_the_step_in_the_file_beats_the_name(name: str, told: dict[str, int], step: int | None) -> None:
    for content in (torch_file(told=told), old_torch_file(told), pickle.dumps(told), pickle.dumps(told, protocol=4)):
        found = latest_complete(DictFolder({name: content}), "torch")
        assert found.best is not None and found.best.step == step


def test_only_the_outermost_keys_of_a_file_tell_its_step() -> None:
    optimizer = {"state": {0: {"step": 77, "exp": (1, 2)}}, "epoch": 5}
    state = {"model": {"w": [1, 2]}, "optimizer": optimizer, "iter_num": 300, "tail": {"step": 3}}
    for protocol in (2, 3, 4, 5):
        found = latest_complete(DictFolder({"ckpt.pt": pickle.dumps(state, protocol=protocol)}), "torch")
        assert found.best is not None and found.best.step == 300


def test_a_search_reads_few_of_many_checkpoints() -> None:
    names = [name for step in range(100) for name in (f"g_{step:08d}", f"do_{step:08d}", f"step_{step}/model.bin")]
    folder = DictFolder(dict.fromkeys([*names, "last.pt"], torch_file()))
    latest_complete(folder, "auto")
    assert len(set(folder.reads)) <= 16, "five are judged, and one of each pattern is looked at"


def test_a_rank_missing_in_the_middle_makes_the_set_unusable() -> None:
    files = {f"step_9_rank{rank}.pt": torch_file() for rank in (0, 2)} | {"step_8_rank0.pt": torch_file()}
    found = latest_complete(DictFolder(files), "torch")
    assert best(found) == "step_8_rank0.pt"
    assert reasons(found) == {"step_9_rank0.pt": "no file of rank 1 of 3"}


@each(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"not a checkpoint", "neither a zip archive nor a pickle"),
        (torch_file() + b"\0", "truncated"),
        (b"\x80\x02]q\x00.", None),
        (pickle.dumps(list(range(100_000))), None),
        (pickle.dumps({"a": b"x" * 300_000}), None),
        (pickle.dumps({"a": b"x" * 300_000})[:-5], "truncated"),
        (b"\x80\x02\xff", "truncated"),
    ],
    ids=["empty", "text", "bytes after the end", "small", "many opcodes", "large argument", "cut", "no opcode"],
)
def test_a_torch_file_is_judged_by_its_structure(content: bytes, says: str | None) -> None:
    reason = judge_file(DictFolder({"a.pt": content}), "a.pt")
    assert reason is None if says is None else reason is not None and reason.startswith(says)


def test_pages_that_a_crash_left_as_zeros_are_seen_where_a_member_begins() -> None:
    whole = torch_file(b"w" * 5000)
    at = whole.index(b"PK\x03\x04", 10)
    reason = judge_file(DictFolder({"a.pt": whole[:at] + b"\0" * 4096 + whole[at + 4096 :]}), "a.pt")
    assert reason is not None and reason.startswith("no header of member archive/data/0")


def test_a_file_cut_inside_a_zip_that_it_holds_is_not_mistaken_for_a_whole_one() -> None:
    outer = torch_file(torch_file())
    inner_end = outer.index(b"PK\x05\x06") + 22
    reason = judge_file(DictFolder({"a.pt": outer[:inner_end]}), "a.pt")
    assert reason is not None and reason.startswith("zip directory ends at byte")


def test_a_zip_with_a_comment_is_whole() -> None:
    made = io.BytesIO(torch_file())
    with zipfile.ZipFile(made, "a") as archive:
        archive.comment = b"written by us PK\x05\x06"
    assert judge_file(DictFolder({"a.pt": made.getvalue()}), "a.pt") is None


@each(
    ("change", "says"),
    [
        ({".metadata": None}, "no .metadata: the save has not finished"),
        ({"__1_0.distcp": None}, "__1_0.distcp is missing"),
        ({"__1_0.distcp": b""}, "__1_0.distcp has 0 of 42 bytes"),
        ({".metadata": b""}, ".metadata: empty"),
        ({".metadata": dcp_metadata([]), "__0_0.distcp": b""}, "__0_0.distcp has 0 of 1 bytes"),
        ({"extra.pt": b"PK\x03\x04"}, "step-9/extra.pt: truncated: no zip end record in the last bytes of 4"),
    ],
    ids=["unfinished", "missing shard", "empty shard", "empty metadata", "metadata names nothing", "torn extra file"],
)
def test_a_damaged_dcp_folder_tells_what_is_wrong(change: dict[str, bytes | None], says: str) -> None:
    files: dict[str, bytes | None] = {**dcp_folder("step-9"), **{f"step-9/{name}": new for name, new in change.items()}}
    kept = {name: content for name, content in files.items() if content is not None}
    found = latest_complete(DictFolder(kept), "dcp")
    assert reasons(found) == {"step-9": says}


def test_a_shard_that_no_metadata_names_may_be_empty() -> None:
    # torch writes one for a rank that has nothing to save.
    assert best(latest_complete(DictFolder(dcp_folder("step-9") | {"step-9/__2_0.distcp": b""}), "dcp")) == "step-9"


def test_a_checkpoint_that_runs_code_when_loaded_is_only_looked_at() -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return exec, ("raise SystemExit('executed')",)

    bomb = pickle.dumps(Bomb())
    files = {"step_1.pt": bomb, **dcp_folder("step-9"), "step-9/.metadata": bomb}
    assert best(latest_complete(DictFolder(files), "auto")) is not None


def test_megatron_takes_what_the_tracker_names_and_says_why_not_the_newer_one() -> None:
    files = megatron_folder("iter_0000100") | megatron_folder("iter_0000200") | {TRACKER: b"100\n"}
    found = latest_complete(DictFolder(files), "megatron")
    assert best(found) == "iter_0000100"
    assert reasons(found) == {
        "iter_0000200": "newer than iteration 100 in latest_checkpointed_iteration.txt: its save has not finished"
    }


@each("said", [b"", b"2", b"\0\0\0"], ids=["empty", "cut", "zeros"])
def test_a_torn_megatron_tracker_leaves_the_choice_to_structure(said: bytes) -> None:
    files = megatron_folder("iter_0000100") | megatron_folder("iter_0000200") | {TRACKER: said}
    found = latest_complete(DictFolder(files), "megatron")
    assert best(found) == "iter_0000200"
    assert list(reasons(found)) == [TRACKER]


def test_megatron_without_a_tracker_trusts_only_the_layout_that_marks_its_own_end() -> None:
    files = megatron_folder("iter_0000200") | megatron_dist_folder("iter_0000100")
    found = latest_complete(DictFolder(files), "megatron")
    assert best(found) == "iter_0000100"
    assert "no save was ever finished" in reasons(found)["iter_0000200"]


def test_megatron_release_has_no_step() -> None:
    files = megatron_folder("release") | megatron_folder("iter_0000100") | {TRACKER: b"release"}
    found = latest_complete(DictFolder(files), "megatron")
    assert found.best is not None and (found.best.path, found.best.step) == ("release", None)


@each(
    ("gone", "says"),
    [
        ("mp_rank_00_001/", "3 of 2 × 2 tensor × pipeline ranks"),
        ("mp_rank_00_", "no folder of tensor rank 0"),
        ("mp_rank_01_001/distrib_optim.pt", "mp_rank_01_001: no distrib_optim.pt, which other ranks have"),
        ("mp_rank_01_001/model_optim_rng.pt", "mp_rank_01_001: no model file"),
    ],
    ids=["one rank", "a row", "an optimizer", "a model"],
)
def test_megatron_ranks_form_a_full_grid(gone: str, says: str) -> None:
    files = megatron_folder("iter_0000100") | {TRACKER: b"100"}
    kept = {name: content for name, content in files.items() if f"iter_0000100/{gone}" not in name}
    assert reasons(latest_complete(DictFolder(kept), "megatron")) == {"iter_0000100": says}


@each(
    ("gone", "says"),
    [
        ("bf16_zero_pp_rank_0_mp_rank_01_optim_states.pt", "optimizer states: 3 of 4 files"),
        ("bf16_zero_pp_rank_0", "optimizer states: no file of rank 0 of 2"),
        ("mp_rank_00_model_states.pt", "model states: no file of rank 0 of 2"),
        ("/mp_rank_01_model_states.pt", "optimizer states of 2 model-parallel ranks, model states of 1"),
        ("model_states.pt", "no model states"),
    ],
    ids=["one", "a data rank", "model rank 0", "last model rank", "no model"],
)
def test_deepspeed_ranks_have_no_gap(gone: str, says: str) -> None:
    files = deepspeed_folder("global_step100") | {"latest": b"global_step100"}
    kept = {name: content for name, content in files.items() if gone not in name}
    assert reasons(latest_complete(DictFolder(kept), "deepspeed")) == {"global_step100": says}


def test_deepspeed_pipeline_layers_may_be_numbered_with_gaps() -> None:
    files = {f"global_step5/layer_{layer:02d}-model_{rank:02d}-model_states.pt" for layer in (1, 3) for rank in (0, 1)}
    tree = dict.fromkeys(files, torch_file()) | deepspeed_folder("global_step5") | {"latest": b"global_step5"}
    assert best(latest_complete(DictFolder(tree), "deepspeed")) == "global_step5"


@each("said", [b"", b"global_step", b"../elsewhere"], ids=["empty", "cut", "a path"])
def test_a_torn_deepspeed_latest_leaves_the_choice_to_structure(said: bytes) -> None:
    found = latest_complete(DictFolder(deepspeed_folder("global_step5") | {"latest": said}), "deepspeed")
    assert best(found) == "global_step5"
    assert list(reasons(found)) == ["latest"]


def test_a_folder_newer_than_deepspeeds_latest_is_an_unfinished_save() -> None:
    files = deepspeed_folder("global_step5") | deepspeed_folder("global_step7") | {"latest": b"global_step5"}
    found = latest_complete(DictFolder(files), "deepspeed")
    assert best(found) == "global_step5"
    assert reasons(found) == {"global_step7": "newer than global_step5 in latest: its save has not finished"}


@each(
    ("pattern", "files", "path", "step"),
    [
        ("step_{step}.pt", {"step_9.pt": torch_file(), "step_10.pt": torch_file()[:-1]}, "step_9.pt", 9),
        ("step_{step}.bin", {"step_9.bin": b"x", "step_10.bin": b""}, "step_9.bin", 9),
        ("ckpt-{step}/DONE", {"ckpt-9/DONE": b"", "ckpt-9/a.pt": torch_file(), "ckpt-10/a.pt": b"x"}, "ckpt-9", 9),
        ("ckpt-{step}/DONE", {"ckpt-9/DONE": b"", "ckpt-10/DONE": b"", "ckpt-10/a.pt": b"x"}, "ckpt-9", 9),
        ("{step}/model.pt", {"9/model.pt": torch_file(), "10/other.pt": torch_file()}, "9/model.pt", 9),
        ("run?/*-{step}.pt", {"run1/a-9.pt": torch_file(), "x/a-10.pt": torch_file()}, "run1/a-9.pt", 9),
        ("{step}/m_{step}.pt", {"9/m_9.pt": torch_file(), "10/m_11.pt": torch_file()}, "9/m_9.pt", 9),
        ("ckpt-{step}", dcp_folder("ckpt-9") | {"ckpt-10/__0_0.distcp": b"x"}, "ckpt-9", 9),
        ("last.ckpt", {"last.ckpt": torch_file()}, "last.ckpt", None),
        ("w[1]_{step}.x", {"w[1]_9.x": b"1", "w1_10.x": b"1"}, "w[1]_9.x", 9),
    ],
    ids=["zip", "any file", "marker", "marker of a torn one", "inside", "wild", "twice", "folder", "fixed", "brackets"],
)
def test_a_pattern_names_the_checkpoints(pattern: str, files: dict[str, bytes], path: str, step: int | None) -> None:
    found = latest_complete(DictFolder(files), "pattern", pattern)
    assert found.best is not None
    assert (found.best.path, found.best.step) == (path, step)


@each(
    ("format", "pattern"),
    [("pattern", "ckpt-{step}/model.bin"), ("dcp", None), ("torch", None)],
)
def test_a_folder_that_cannot_be_listed_is_skipped_with_the_reason(format: str, pattern: str | None) -> None:
    files = {"ckpt-9/model.bin": b"x", "ckpt-10/model.bin": b"x"}
    found = latest_complete(DictFolder(files, unreadable=["ckpt-10"]), format, pattern)
    assert reasons(found) == {"ckpt-10": "cannot be listed: Permission denied"}


@each("format", ["auto", "torch", "dcp", "megatron", "deepspeed"])
def test_a_root_that_cannot_be_listed_is_not_taken_for_empty(format: str) -> None:
    with pytest.raises(PermissionError):
        latest_complete(DictFolder({"step_9.pt": torch_file()}, unreadable=[""]), format)
