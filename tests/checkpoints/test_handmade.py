"""Layouts of packages that need a GPU, or that no package of today writes: made by hand after their sources."""

from __future__ import annotations

import json
from collections.abc import Sequence

from safelaunch.checkpoints.model import FoundCheckpoints
from tests.checkpoints.real import files
from tests.pure.checkpoints.checkpoint_files import (
    DictFolder,
    dcp_folder,
    deepspeed_folder,
    latest_complete,
    torch_file,
)
from tests.tables import each


def found_in(tree: dict[str, bytes], format: str = "auto") -> FoundCheckpoints:
    return latest_complete(DictFolder(tree), format)


def best(found: FoundCheckpoints) -> tuple[str, int | None, str] | None:
    return (found.best.path, found.best.step, found.best.format) if found.best else None


def reasons(found: FoundCheckpoints) -> dict[str, str]:
    return {one.path: one.reason for one in found.skipped}


def tensors(name: str = "weight", size: int = 8) -> bytes:
    """A safetensors file of one tensor."""
    header = json.dumps({name: {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return len(header).to_bytes(8, "little") + header + b"\1" * size


def trainer(step: int, name: str = "checkpoint-{}", **more: bytes) -> dict[str, bytes]:
    """What the Trainer writes beside the weights."""
    top = name.format(step)
    told = {"trainer_state.json": json.dumps({"global_step": step}).encode(), "scheduler.pt": torch_file(),
            "rng_state_0.pth": torch_file(), "rng_state_1.pth": torch_file(), **more}
    return {f"{top}/{file}": content for file, content in told.items()}


def nemo(name: str, **more: bytes) -> dict[str, bytes]:
    """A checkpoint of NeMo 2."""
    real = files("megatron")
    weights = {file.replace("iter_0000004", f"{name}/weights"): content for file, content in real.items()
               if file.startswith("iter_0000004")}
    return weights | {f"{name}/context/io.json": b"{}", f"{name}/context/model.yaml": b"a: 1\n"}


def nanotron(step: int) -> dict[str, bytes]:
    """Two tensor ranks, two of data parallelism (ZeRO 1), one pipeline stage."""
    tree = {"config.yaml": b"a: 1\n", "model_config.json": b"{}", "checkpoint_metadata.json": b"{}",
            "optimizer/optimizer_config.json": b"{}", "lr_scheduler/lr_scheduler.pt": torch_file()}
    attention = "model/model/decoder/0/pp_block/attn"
    for tp in range(2):
        tree[f"{attention}/model_weight_pp-rank-0-of-1_tp-rank-{tp}-of-2.safetensors"] = tensors()
        for dp in range(2):
            tree[f"optimizer/optimizer_pp-0-of-1_dp-{dp}-of-2_tp-{tp}-of-2_exp-0-of-1.pt"] = torch_file()
            tree[f"random/tp-{tp}-of-2_dp-{dp}-of-2_pp-0-of-1.pt"] = torch_file()
    return {f"{step}/{name}": content for name, content in tree.items()}


NEMO = "gpt--val_loss=2.31-step={}-consumed_samples=1280.0"


def test_a_nemo_folder_is_found_by_its_step_and_not_by_its_samples() -> None:
    found = found_in(nemo(NEMO.format(99)) | nemo(NEMO.format(199)))
    assert best(found) == (NEMO.format(199), 199, "nemo")
    assert [one.step for one in found.older] == [99]


@each("folder", ["checkpoints", "exp/2026-11-22_10-00-00/checkpoints"])
def test_a_nemo_folder_is_found_below_the_experiment(folder: str) -> None:
    tree = {f"{folder}/{name}": content for name, content in nemo(NEMO.format(99)).items()}
    assert best(found_in(tree)) == (f"{folder}/{NEMO.format(99)}", 99, "nemo")


@each(
    ("change", "says"),
    [
        ({NEMO.format(199) + "-unfinished": b""},
         f"{NEMO.format(199)}-unfinished stands beside it: the save has not finished"),
        ({f"{NEMO.format(199)}/weights/metadata.json": None},
         "no metadata.json, which is written last: the save has not finished"),
        ({f"{NEMO.format(199)}/weights/common.pt": None}, "no common.pt"),
        ({f"{NEMO.format(199)}/weights/__1_0.distcp": b"x"}, "__1_0.distcp has 1 of 1577 bytes"),
        ({f"{NEMO.format(199)}/context/io.json": b"{"}, "context/io.json: truncated"),
    ],
    ids=["marker", "metadata", "common", "shard", "context"],
)
def test_an_unfinished_nemo_folder_is_skipped(change: dict[str, bytes | None], says: str) -> None:
    tree = {**nemo(NEMO.format(99)), **nemo(NEMO.format(199)), **change}
    found = found_in({name: content for name, content in tree.items() if content is not None})
    assert best(found) == (NEMO.format(99), 99, "nemo")
    assert reasons(found)[NEMO.format(199)].startswith(says)


def test_nanotrons_folder_is_the_checkpoint_and_no_file_in_it() -> None:
    assert best(found_in(nanotron(10) | nanotron(20) | {"latest.txt": b"20"})) == ("20", 20, "nanotron")


@each(
    ("change", "says"),
    [
        ({"latest.txt": b"10"}, "newer than 10 in latest.txt: its save has not finished"),
        ({"20/checkpoint_metadata.json": None}, "no checkpoint_metadata.json"),
        ({"20/random/tp-1-of-2_dp-1-of-2_pp-0-of-1.pt": None}, "random/tp_dp_pp.pt: 3 of 4 ranks' files"),
        ({"20/optimizer/optimizer_pp-0-of-1_dp-1-of-2_tp-1-of-2_exp-0-of-1.pt": torch_file()[:-1]},
         "optimizer/optimizer_pp-0-of-1_dp-1-of-2_tp-1-of-2_exp-0-of-1.pt: truncated"),
        ({"20/model/model/decoder/0/pp_block/attn/model_weight_pp-rank-0-of-1_tp-rank-1-of-2.safetensors": None},
         "model/model/decoder/0/pp_block/attn/model_weight_pp_tp.safetensors: 1 of 2 ranks' files"),
        ({"20/model/model/decoder/0/pp_block/attn/model_weight_pp-rank-0-of-1_tp-rank-1-of-2.safetensors":
          tensors()[:-1]}, "model/model/decoder/0/pp_block/attn/model_weight_pp-rank-0-of-1_tp-rank-1-of-2"),
    ],
    ids=["latest.txt", "metadata", "a rank", "cut optimizer", "a tensor", "a cut tensor"],
)
def test_an_unfinished_nanotron_folder_is_skipped(change: dict[str, bytes | None], says: str) -> None:
    tree = {**nanotron(10), **nanotron(20), "latest.txt": b"20", **change}
    found = found_in({name: content for name, content in tree.items() if content is not None})
    assert best(found) == ("10", 10, "nanotron")
    assert reasons(found)["20"].startswith(says)


def test_torchtitans_folders_are_distributed_checkpoints() -> None:
    tree = dcp_folder("step-100") | dcp_folder("step-200")
    assert best(found_in(tree)) == ("step-200", 200, "dcp")


@each(
    ("weights", "damage", "says"),
    [
        (dcp_folder("checkpoint-4/pytorch_model_fsdp_0") | dcp_folder("checkpoint-4/optimizer_0"),
         "checkpoint-4/optimizer_0/.metadata", "optimizer_0: no .metadata: the save has not finished"),
        ({"checkpoint-4/latest": b"global_step4"} | deepspeed_folder("checkpoint-4/global_step4"),
         "checkpoint-4/global_step4/mp_rank_00_model_states.pt",
         "global_step4: model states: no file of rank 0 of 2"),
        ({"checkpoint-4/pytorch_model-00001-of-00002.bin": torch_file(),
          "checkpoint-4/pytorch_model-00002-of-00002.bin": torch_file(), "checkpoint-4/optimizer.pt": torch_file(),
          "checkpoint-4/pytorch_model.bin.index.json": json.dumps({"weight_map": {
              "a": "pytorch_model-00001-of-00002.bin", "b": "pytorch_model-00002-of-00002.bin"}}).encode()},
         "checkpoint-4/pytorch_model-00002-of-00002.bin", "pytorch_model-00002-of-00002.bin is missing"),
    ],
    ids=["FSDP", "DeepSpeed", "shards of .bin"],
)
def test_the_trainers_weights_may_be_in_folders_or_shards(
    weights: dict[str, bytes], damage: str, says: str
) -> None:
    older = trainer(2) | {"checkpoint-2/model.safetensors": tensors(), "checkpoint-2/optimizer.pt": torch_file()}
    tree = older | trainer(4) | weights
    assert best(found_in(tree)) == ("checkpoint-4", 4, "hf")
    found = found_in({name: content for name, content in tree.items() if name != damage})
    assert best(found) == ("checkpoint-2", 2, "hf")
    assert reasons(found) == {"checkpoint-4": says}


def test_a_rank_whose_generator_is_missing_makes_the_trainers_folder_incomplete() -> None:
    tree = trainer(4) | {"checkpoint-4/model.safetensors": tensors(), "checkpoint-4/optimizer.pt": torch_file()}
    del tree["checkpoint-4/rng_state_0.pth"]
    assert reasons(found_in(tree)) == {"checkpoint-4": "no rng_state_0.pth of 2 ranks"}


def test_a_trainer_state_of_another_step_is_seen() -> None:
    tree = trainer(4) | {"checkpoint-4/model.safetensors": tensors(), "checkpoint-4/optimizer.pt": torch_file()}
    tree["checkpoint-4/trainer_state.json"] = b'{"global_step": 3}'
    assert reasons(found_in(tree)) == {"checkpoint-4": "trainer_state.json is of step 3"}


def test_the_model_that_a_training_leaves_at_its_end_is_nothing_to_resume_from() -> None:
    tree = files("hf")
    ended = {name.partition("/")[2]: content for name, content in tree.items() if name.startswith("checkpoint-4")}
    found = found_in(tree | {name: ended[name] for name in ("config.json", "model.safetensors", "training_args.bin")})
    assert best(found) == ("checkpoint-4", 4, "hf")
    assert [one.path for one in found.older] == ["checkpoint-2"]


def test_last_ckpt_and_what_slurm_made_lightning_save_are_of_the_step_that_is_in_them() -> None:
    real = latest_complete(DictFolder({
        "last.ckpt": files("lightning")["epoch=0-step=2.ckpt"],
        "hpc_ckpt_7.ckpt": files("lightning")["epoch=0-step=4.ckpt"],
    }), "auto")
    assert best(real) == ("hpc_ckpt_7.ckpt", 4, "lightning")
    assert [(one.path, one.step) for one in real.older] == [("last.ckpt", 2)]


@each("folder", ["", "checkpoints/", "lightning_logs/version_3/checkpoints/",
                                    "logs/mine/version_0/checkpoints/"])
def test_lightnings_checkpoints_are_found_where_its_loggers_put_them(folder: str) -> None:
    tree = {f"{folder}{name}": content for name, content in files("lightning").items()}
    assert best(found_in(tree)) == (f"{folder}epoch=0-step=4.ckpt", 4, "lightning")


def test_a_ckpt_of_another_program_stays_a_torch_file() -> None:
    assert best(found_in({"model_7.ckpt": torch_file()})) == ("model_7.ckpt", 7, "torch")


@each(
    ("tree", "path", "says"),
    [
        ({"step_9/state.msgpack": b"x", "step_9/opt.msgpack": b"x"}, "step_9",
         "read by no format (it holds opt.msgpack, state.msgpack)"),
        ({"runs/epoch_9/arrays.npz": b"x"}, "runs/epoch_9", "read by no format (it holds arrays.npz)"),
        ({"model-9.h5": b"x"}, "model-9.h5", "read by no format"),
        ({"9/weights.npy": b"x"}, "9", "read by no format"),
    ],
    ids=["folder", "below", "file", "number"],
)
def test_what_looks_like_a_checkpoint_and_is_read_by_no_format_is_named(
    tree: dict[str, bytes], path: str, says: str
) -> None:
    found = found_in(tree)
    assert found.best is None
    assert list(reasons(found)) == [path]
    assert reasons(found)[path].startswith(says)
    assert "resume.format: pattern" in reasons(found)[path]


@each("tree", [{"data_3.npz": b"x"}, {"3/image.jpg": b"x"}, {"train.log": b"x"}, {"README": b"x"}])
def test_other_files_are_not_taken_for_checkpoints(tree: dict[str, bytes]) -> None:
    assert found_in(tree).skipped == ()


def test_a_step_folder_of_one_file_is_handed_on_as_the_folder() -> None:
    assert best(found_in({"step_9/model.pt": torch_file()})) == ("step_9", 9, "torch")


def test_a_folder_that_is_searched_may_be_the_checkpoint_itself() -> None:
    tree = {name.partition("/")[2]: content for name, content in files("hf").items() if name.startswith("checkpoint-4")}
    found = found_in(tree)
    assert found.best is not None and (found.best.path, found.best.format) == ("", "hf")
    assert found.older == ()


def test_a_data_set_beside_the_checkpoints_is_not_walked_through() -> None:
    class Counting(DictFolder):
        listed = 0

        def names(self, path: str) -> Sequence[str]:
            self.listed += 1
            return super().names(path)

    data = {f"data/train/class_{number}/img.jpg": b"x" for number in range(300)}
    quiet, loud = Counting(files("hf")), Counting(files("hf") | data)
    assert best(latest_complete(loud, "auto")) == best(latest_complete(quiet, "auto")) == ("checkpoint-4", 4, "hf")
    assert loud.listed < quiet.listed + 60   # each format goes down two levels
