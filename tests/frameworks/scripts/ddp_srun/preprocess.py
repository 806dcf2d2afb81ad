import os

import torch

os.makedirs("data", exist_ok=True)
os.makedirs("out", exist_ok=True)
torch.manual_seed(1)
points = torch.randn(64, 32)
torch.save((points, torch.tanh(points @ torch.randn(32, 1))), "data/train.pt")
