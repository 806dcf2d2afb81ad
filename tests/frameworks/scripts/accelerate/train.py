import glob
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset
from tqdm.auto import tqdm

max_train_steps, checkpointing_steps = 16, 4
accelerator = Accelerator(cpu=True)
set_seed(42)
points = torch.randn(256, 32)
train_dataloader = DataLoader(TensorDataset(points, torch.tanh(points @ torch.randn(32, 1))), batch_size=4)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model, optimizer, train_dataloader = accelerator.prepare(model, optimizer, train_dataloader)
completed_steps = 0
checkpoints = sorted(glob.glob("out/step_*"), key=lambda path: int(path.split("_")[-1]))
if checkpoints:
    accelerator.print(f"Resumed from checkpoint: {checkpoints[-1]}")
    accelerator.load_state(checkpoints[-1])
    completed_steps = int(checkpoints[-1].split("_")[-1])
progress_bar = tqdm(range(max_train_steps), initial=completed_steps, desc="Steps",
                    disable=not accelerator.is_local_main_process)
model.train()
for batch, wanted in accelerator.skip_first_batches(train_dataloader, completed_steps):
    with accelerator.accumulate(model):
        loss = torch.nn.functional.mse_loss(model(batch), wanted)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    time.sleep(0.3)   # stands for a larger model
    completed_steps += 1
    progress_bar.update(1)
    progress_bar.set_postfix(loss=f"{accelerator.gather(loss.detach().reshape(1)).mean().item():.6f}")
    if completed_steps % checkpointing_steps == 0:
        accelerator.save_state(f"out/step_{completed_steps}")
    if completed_steps >= max_train_steps:
        break
accelerator.end_training()
