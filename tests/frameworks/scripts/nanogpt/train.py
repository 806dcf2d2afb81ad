import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

out_dir, max_iters, eval_interval = "out", 16, 4
dist.init_process_group(backend="gloo")
ddp_rank = int(os.environ["RANK"])
master_process = ddp_rank == 0
os.makedirs(out_dir, exist_ok=True)
torch.manual_seed(1337)
model = torch.nn.Sequential(torch.nn.Embedding(64, 32), torch.nn.Linear(32, 64))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
iter_num = 0
ckpt_path = os.path.join(out_dir, "ckpt.pt")
if os.path.exists(ckpt_path):
    print(f"Resuming training from {out_dir}")
    checkpoint = torch.load(ckpt_path)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    iter_num = checkpoint["iter_num"]
model = DDP(model)
while iter_num < max_iters:
    t0 = time.time()
    torch.manual_seed(1000 * iter_num + ddp_rank)
    X = torch.randint(64, (4, 16))
    loss = torch.nn.functional.cross_entropy(model(X).flatten(0, 1), ((X + 1) % 64).flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    time.sleep(0.3)   # stands for a larger model
    iter_num += 1
    if master_process:
        print(f"iter {iter_num}: loss {loss.item():.4f}, time {(time.time() - t0) * 1000:.2f}ms, mfu -100.00%")
    if iter_num % eval_interval == 0 and master_process:
        print(f"saving checkpoint to {out_dir}")
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": iter_num},
                   ckpt_path)
dist.destroy_process_group()
