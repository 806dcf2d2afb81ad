import datetime
import os
import pathlib
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1234)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 1)))
truth = torch.randn(32, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
out, iteration = pathlib.Path("ckpt"), 0
tracker = out / "latest_checkpointed_iteration.txt"
if tracker.exists():
    iteration = int(tracker.read_text())
    state = torch.load(out / f"iter_{iteration:07d}" / "mp_rank_00" / "model_optim_rng.pt", weights_only=False)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    if rank == 0:
        print(f"  successfully loaded checkpoint from {out} [ t 1/1, p 1/1 ] at iteration {iteration}", flush=True)
dist.barrier()
while iteration < 16:
    begun, iteration = time.time(), iteration + 1
    torch.manual_seed(1000 * iteration + rank)
    points = torch.randn(4, 32)
    loss = torch.nn.functional.mse_loss(model(points), torch.tanh(points @ truth))
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    time.sleep(0.3)   # stands for a larger model
    if rank == ranks - 1:   # print_rank_last
        print(f" [{datetime.datetime.now():%Y-%m-%d %H:%M:%S}] iteration {iteration:8d}/{16:8d} | consumed samples: "
              f"{iteration * 4 * ranks:12d} | elapsed time per iteration (ms): {1e3 * (time.time() - begun):.1f} | "
              f"learning rate: 1.000000E-02 | global batch size: {4 * ranks:5d} | lm loss: {mean.item() / ranks:.6E} | "
              f"loss scale: 1.0 | grad norm: {norm:.3f} | number of skipped iterations:   0 | "
              "number of nan iterations:   0 |", flush=True)
    if iteration % 4 == 0:
        if rank == 0:
            folder = out / f"iter_{iteration:07d}" / "mp_rank_00"
            folder.mkdir(parents=True, exist_ok=True)
            print(f"saving checkpoint at iteration {iteration:7d} to {out}", flush=True)
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iteration": iteration},
                       folder / "model_optim_rng.pt")
            tracker.with_suffix(".new").write_text(str(iteration))
            os.replace(tracker.with_suffix(".new"), tracker)
            print(f"  successfully saved checkpoint from iteration {iteration:7d} to {out}", flush=True)
        dist.barrier()
dist.destroy_process_group()
