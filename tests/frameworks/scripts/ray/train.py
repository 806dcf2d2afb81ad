import glob
import os
import time

import ray
import torch

iterations = 16
ray.init(address="auto")
truth = torch.randn(32, 1, generator=torch.Generator().manual_seed(1))


@ray.remote
class DataWorker:
    def __init__(self, worker):
        self.worker = worker

    def compute_gradients(self, weights, iteration):
        points = torch.randn(8, 32, generator=torch.Generator().manual_seed(1000 * iteration + self.worker))
        weights = weights.clone().requires_grad_()
        loss = torch.nn.functional.mse_loss(points @ weights, torch.tanh(points @ truth))
        loss.backward()
        return weights.grad, loss.item()


workers = [DataWorker.options(scheduling_strategy="SPREAD").remote(i) for i in range(2)]
weights, start = torch.zeros(32, 1), 0
saved = glob.glob("out/checkpoint_*.pt")
if saved:
    start = max(int(path.split("_")[-1][:-3]) for path in saved)
    weights = torch.load(f"out/checkpoint_{start}.pt")["weights"]
os.makedirs("out", exist_ok=True)
for i in range(start + 1, iterations + 1):
    answers = ray.get([worker.compute_gradients.remote(weights, i) for worker in workers])
    weights = weights - 0.1 * sum(gradient for gradient, _ in answers) / 2
    time.sleep(0.3)   # stands for a larger model
    print(f"Iter {i}: \tloss: {sum(loss for _, loss in answers) / 2:.6f}", flush=True)
    if i % 4 == 0:
        torch.save({"weights": weights}, f"out/checkpoint_{i}.pt")
