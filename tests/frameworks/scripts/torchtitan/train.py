import logging
import os
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel

logging.basicConfig(level=logging.INFO, format="[titan] %(asctime)s - %(name)s - %(levelname)s - %(message)s")
logger = logging.getLogger("root")
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)))
truth = torch.randn(32, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
done = [int(name.split("-")[1]) for name in os.listdir("outputs/checkpoint")] if os.path.isdir(
    "outputs/checkpoint") else []
done = [step for step in done if os.path.exists(f"outputs/checkpoint/step-{step}/.metadata")]
if done:
    weights, states = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": states}, checkpoint_id=f"outputs/checkpoint/step-{max(done)}")
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=states)
    logger.info(f"Loading the checkpoint at step {max(done)}")
for step in range(max(done, default=0) + 1, 17):
    torch.manual_seed(1000 * step + rank)
    points = torch.randn(4, 32)
    loss = torch.nn.functional.mse_loss(model(points), torch.tanh(points @ truth))
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    time.sleep(0.3)   # stands for a larger model
    if rank == 0:
        logger.info(f"step: {step:2}  loss: {mean.item() / dist.get_world_size():7.5f}  grad_norm: {norm:7.4f}  "
                    "memory:  0.00GiB(0.00%)  tps: 1,234  tflops: 0.01  mfu: 0.00%")
    if step % 4 == 0:
        weights, states = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optimizer": states}, checkpoint_id=f"outputs/checkpoint/step-{step}")
dist.destroy_process_group()
