import argparse
import time

import deepspeed
import torch
from deepspeed.utils.logging import set_log_level_from_string

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
parser = deepspeed.add_config_arguments(parser)
args = parser.parse_args()

set_log_level_from_string("info")
deepspeed.init_distributed()
torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
truth = torch.randn(32, 1)
model_engine, optimizer, _, _ = deepspeed.initialize(args=args, model=net, model_parameters=net.parameters())
model_engine.load_checkpoint("out")   # follows out/latest; starts anew where there is none
rank = torch.distributed.get_rank()
for i in range(model_engine.global_steps, 16):
    torch.manual_seed(1000 * i + rank)
    inputs = torch.randn(4, 32)
    loss = torch.nn.functional.mse_loss(model_engine(inputs), torch.tanh(inputs @ truth))
    model_engine.backward(loss)
    model_engine.step()
    time.sleep(0.3)   # stands for a larger model
    if rank == 0:
        print(f"[{1 : d}, {i + 1 : 5d}] loss: {loss.item() : .6f}")
    if (i + 1) % 4 == 0:
        model_engine.save_checkpoint("out")
