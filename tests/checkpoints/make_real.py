"""Makes tiny checkpoints with the real packages: `make_real.py OUT [LAYOUT]...`, then `make_real.py --pack OUT`.

Not run by the tests: its output is real.tar.xz, and README.md names the packages and their versions. Each layout is
made by a process of its own, because trainers keep global state.
"""
# The packages are in no environment of the project, so nothing of them can be checked here.
# mypy: ignore-errors

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

STEPS = (2, 4)


def model():
    import torch

    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))


def tiny_llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                         num_attention_heads=1, num_key_value_heads=1, max_position_embeddings=8)
    return LlamaForCausalLM(config)


def trained(net):
    """An optimizer after one step, so that it has state."""
    import torch

    optimizer = torch.optim.AdamW(net.parameters())
    sum(parameter.sum() for parameter in net.parameters()).backward()
    optimizer.step()
    return optimizer


def train_hf(out: Path, net, **more) -> None:
    import torch
    from transformers import Trainer, TrainingArguments

    words = [{"input_ids": torch.tensor([1, 2, 3]), "labels": torch.tensor([1, 2, 3])}] * 8
    arguments = TrainingArguments(output_dir=str(out), max_steps=STEPS[-1], save_steps=STEPS[0], use_cpu=True,
                                  report_to=[], per_device_train_batch_size=1, logging_steps=1, disable_tqdm=True,
                                  **more)
    Trainer(model=net, args=arguments, train_dataset=words).train()


def hf(out: Path) -> None:
    train_hf(out, tiny_llama())


def hf_sharded(out: Path) -> None:
    from functools import partial

    net = tiny_llama()
    net.save_pretrained = partial(net.save_pretrained, max_shard_size="1KB")
    train_hf(out, net)


def hf_peft(out: Path) -> None:
    from peft import LoraConfig, get_peft_model

    train_hf(out, get_peft_model(tiny_llama(), LoraConfig(r=1, target_modules=["q_proj"])))


def hf_save_only_model(out: Path) -> None:
    train_hf(out, tiny_llama(), save_only_model=True)


def accelerate(out: Path) -> None:
    import torch
    from accelerate import Accelerator

    net = model()
    accelerator = Accelerator(cpu=True)
    optimizer = trained(net)
    net, optimizer, _ = accelerator.prepare(net, optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer))
    for step in STEPS:
        accelerator.save_state(str(out / f"step_{step}"))


def safetensors(out: Path) -> None:
    from safetensors.torch import save_file

    for step in STEPS:
        save_file(model().state_dict(), out / f"model_step_{step}.safetensors", metadata={"format": "pt"})


def safetensors_sharded(out: Path) -> None:
    for step in STEPS:
        tiny_llama().save_pretrained(out / f"step_{step}", max_shard_size="1KB")


def torch_files(out: Path) -> None:
    import torch

    net = model()
    state = {"model": net.state_dict(), "optimizer": trained(net).state_dict()}
    for step in STEPS:
        torch.save({**state, "step": step}, out / f"step_{step}.pt")


def dcp(out: Path) -> None:
    ranks(out, "dcp_rank")


def dcp_rank(out: Path) -> None:
    import torch.distributed.checkpoint as checkpoint

    net = model()
    state = {"model": net.state_dict(), "optimizer": trained(net).state_dict()}
    for step in STEPS:
        checkpoint.save(state, checkpoint_id=str(out / f"step-{step}"))


def megatron(out: Path) -> None:
    ranks(out, "megatron_rank")


def megatron_rank(out: Path) -> None:
    import torch
    from megatron.core import dist_checkpointing
    from megatron.core.dist_checkpointing import ShardedTensor

    # There is no GPU to wait for; the files are the same.
    torch.cuda.synchronize, torch.cuda.current_device = lambda: None, lambda: "cpu"
    rank = torch.distributed.get_rank()
    for step in STEPS:
        folder = out / f"iter_{step:07d}"
        folder.mkdir(exist_ok=True)
        torch.distributed.barrier()
        weight = ShardedTensor.from_rank_offsets("weight", torch.ones(4, 3), (0, rank, 2))
        dist_checkpointing.save({"weight": weight, "iteration": step, "args": {"lr": 0.1}}, str(folder))
        torch.distributed.barrier()
        (out / "latest_checkpointed_iteration.txt").write_text(str(step))


def deepspeed(out: Path) -> None:
    ranks(out, "deepspeed_rank")


def deepspeed_rank(out: Path) -> None:
    import deepspeed
    import torch

    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None   # minutes of compiling for a faster all-reduce
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer":
              True}
    net = model()
    engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.SGD(net.parameters(), 0.1), config=config)
    for step in range(1, STEPS[-1] + 1):
        engine.backward(engine(torch.ones(1, 4)).sum())
        engine.step()
        if step in STEPS:
            engine.save_checkpoint(str(out))


def lightning(out: Path) -> None:
    train_lightning(out / "lightning_logs" / "version_0" / "checkpoints")


def train_lightning(folder: Path, strategy="auto") -> None:
    import lightning
    import torch
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = model()

        def training_step(self, batch, _):
            return self.net(batch).sum()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    saver = ModelCheckpoint(folder, every_n_train_steps=STEPS[0], save_top_k=-1, save_last=True)
    trainer = lightning.Trainer(max_steps=STEPS[-1], accelerator="cpu", devices=1, logger=False, callbacks=[saver],
                                enable_progress_bar=False, enable_model_summary=False, strategy=strategy)
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=1))
    trainer.save_checkpoint(folder.parents[2] / "hpc_ckpt_1.ckpt")


def lightning_sharded(out: Path) -> None:
    ranks(out, "lightning_sharded_rank")


def lightning_sharded_rank(out: Path) -> None:
    import torch
    from torch.distributed.checkpoint import FileSystemWriter, save

    # FSDP and ModelParallel need an accelerator: the same calls that FSDPStrategy.save_checkpoint makes.
    for step in STEPS:
        folder = out / f"epoch=0-step={step}.ckpt"
        save({"model": model().state_dict()}, storage_writer=FileSystemWriter(folder, single_file_per_rank=True))
        if torch.distributed.get_rank() == 0:
            torch.save({"epoch": 0, "global_step": step, "pytorch-lightning_version": "2"}, folder / "meta.pt")


def orbax(out: Path) -> None:
    import numpy
    import orbax.checkpoint as ocp

    with ocp.CheckpointManager(out.absolute()) as manager:
        for step in STEPS:
            weight = numpy.random.default_rng(step).random((20, 10))   # too large to stand in the tree itself
            state = {"weight": weight, "bias": numpy.ones(3)}
            manager.save(step, args=ocp.args.StandardSave(state))
            manager.wait_until_finished()


def ranks(out: Path, layout: str) -> None:
    """Run the function of that name in two processes of one group."""
    port = str(20000 + os.getpid() % 9999)
    environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2",
                                "GLOO_SOCKET_IFNAME": "lo", "LOCAL_WORLD_SIZE": "2"}
    argv = [sys.executable, __file__, "--rank", str(out), layout]
    running = [subprocess.Popen(argv, env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
               for rank in range(2)]
    if max(one.wait() for one in running):
        sys.exit(f"{layout}: a rank has failed")


def pack(made: Path) -> None:
    """real.tar.xz, without what is no state: scripts and cards that packages put beside it."""
    with tarfile.open(Path(__file__).with_name("real.tar.xz"), "w:xz") as archive:
        for path in sorted(made.rglob("*")):
            if path.is_file() and path.suffix not in (".py", ".md"):
                member = tarfile.TarInfo(path.relative_to(made).as_posix())
                member.size = path.stat().st_size
                archive.addfile(member, path.open("rb"))


LAYOUTS = {function.__name__: function for function in (
    torch_files, dcp, megatron, deepspeed, hf, hf_sharded, hf_peft, hf_save_only_model, accelerate, safetensors,
    safetensors_sharded, lightning, lightning_sharded, orbax)}


def main(words: list[str]) -> None:
    """Make the layouts that are named, or all, below OUT."""
    if words[0] == "--rank":
        import torch.distributed

        torch.distributed.init_process_group("gloo")
        globals()[words[2]](Path(words[1]))
        torch.distributed.destroy_process_group()
        return
    if words[0] == "--pack":
        pack(Path(words[1]))
        return
    if words[0] == "--one":
        LAYOUTS[words[2]](Path(words[1]) / words[2])
        return
    for layout in words[1:] or LAYOUTS:
        folder = Path(words[0]) / layout
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        code = subprocess.run([sys.executable, __file__, "--one", words[0], layout]).returncode
        print(layout, "made" if code == 0 else f"FAILED ({code})", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
