import glob
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

rank, world_size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
dist.init_process_group(backend="gloo", init_method="env://", world_size=world_size, rank=rank)
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
data = TensorDataset(*torch.load("data/train.pt"))
sampler = DistributedSampler(data, num_replicas=world_size, rank=rank, shuffle=True)
loader = DataLoader(data, batch_size=8, sampler=sampler)
epochs, start_epoch = int(sys.argv[1]), 0
saved = glob.glob("out/checkpoint_*.pt")
if saved:
    start_epoch = max(int(path.split("_")[-1][:-3]) for path in saved)
    state = torch.load(f"out/checkpoint_{start_epoch}.pt")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
dist.barrier()
for epoch in range(start_epoch, epochs):
    sampler.set_epoch(epoch)
    for i, (points, wanted) in enumerate(loader):
        loss = torch.nn.functional.mse_loss(model(points), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.3)   # stands for a larger model
        if rank == 0:
            print(f"Epoch [{epoch + 1}/{epochs}], Step [{i + 1}/{len(loader)}], Loss: {loss.item():.6f}", flush=True)
    if rank == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()},
                   f"out/checkpoint_{epoch + 1}.pt")
dist.destroy_process_group()
