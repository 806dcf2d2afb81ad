"""Trains a small GPT on a short text with DistributedDataParallel, in a way that survives being killed at any moment.

    torchrun --standalone --nproc_per_node 2 train.py --steps 50

Five habits make it so. (1) All that a step draws at random comes from the step's number, so the order of the data needs
no place in the checkpoint. (2) Gradients are summed in the same order in every step. (3) A checkpoint holds everything
else and is renamed into place when it is whole. (4) All ranks agree, in every step, on whether somebody asked for the
end. (5) Each step prints `step N loss X`.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from model import GPT
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

HERE = Path(__file__).resolve().parent


class EndAsked:
    """Whether this rank was asked to end: by SIGUSR2, or by the file that $SAFELAUNCH_KILL_FILE names."""

    def __init__(self) -> None:
        self.by_signal = False
        self.kill_file = os.environ.get("SAFELAUNCH_KILL_FILE")
        signal.signal(signal.SIGUSR2, self.note)

    def note(self, number: int, frame: object) -> None:
        self.by_signal = True

    def __bool__(self) -> bool:
        return self.by_signal or bool(self.kill_file and os.path.exists(self.kill_file))


def read_text(path: Path) -> tuple[Tensor, int]:
    """The text as numbers, and how many different characters it has."""
    text = path.read_text()
    alphabet = {character: number for number, character in enumerate(sorted(set(text)))}
    return torch.tensor([alphabet[character] for character in text]), len(alphabet)


def draw_batch(text: Tensor, step: int, rank: int, args: argparse.Namespace) -> tuple[Tensor, Tensor]:
    """This rank's share of the step's batch: the same characters for this step and rank in every attempt."""
    source = torch.Generator().manual_seed(args.seed * 1_000_003 + step * 4096 + rank)
    starts = torch.randint(len(text) - args.context - 1, (args.batch,), generator=source)
    windows = torch.stack([text[start : start + args.context + 1] for start in starts.tolist()])
    return windows[:, :-1], windows[:, 1:]


def save(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """The state after `step`; whoever sees the name sees a whole file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".tmp")
    with unfinished.open("wb") as file:
        torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def load(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    """The step after which the checkpoint was made; fills model and optimizer."""
    found = torch.load(path, map_location=device, weights_only=True)
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    return int(found["step"])


def train(args: argparse.Namespace, rank: int, device: torch.device) -> None:
    """Trains from the checkpoint, or from nothing, to the last step."""
    text, alphabet = read_text(args.text)
    torch.manual_seed(args.seed)
    model = GPT(alphabet, args.context).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate)
    step = load(args.resume, model, optimizer, device) if args.resume else 0
    parallel = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
    warm_up(parallel, text[: args.context].unsqueeze(0).to(device))
    end_asked = EndAsked()
    if rank == 0:
        origin = f"going on after step {step} from {args.resume}" if args.resume else "starting from nothing"
        print(f"{origin}: {dist.get_world_size()} ranks, {dist.get_backend()}", flush=True)
    while step < args.steps:
        step += 1
        loss, ends = train_step(parallel, optimizer, draw_batch(text, step, rank, args), step, end_asked, args)
        if rank == 0:
            print(f"step {step} loss {loss:.6f}", flush=True)
            if ends or step % args.save_every == 0 or step == args.steps:
                save(args.save_to / f"step_{step:08d}.pt", model, optimizer, step)
        if ends:
            print(f"rank {rank} was asked to end: saved, ending after step {step}", flush=True)
            return


def warm_up(parallel: DistributedDataParallel, characters: Tensor) -> None:
    """One backward pass that changes nothing: after the first one DistributedDataParallel packs the gradients anew.

    Packed otherwise they are summed in another order, and with three ranks or more the last digits differ: the first
    step of a resumed run would not be what it was in the undisturbed one.
    """
    parallel(characters).sum().backward()
    parallel.zero_grad(set_to_none=True)


def train_step(
    parallel: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    batch: tuple[Tensor, Tensor],
    step: int,
    end_asked: EndAsked,
    args: argparse.Namespace,
) -> tuple[float, bool]:
    """(loss over all ranks, whether any rank was asked to end)."""
    begun_s = time.monotonic()
    characters, following = (part.to(next(parallel.parameters()).device) for part in batch)
    torch.manual_seed(args.seed + step * 4096 + dist.get_rank())  # for dropout
    loss = cross_entropy(parallel(characters).flatten(0, 1), following.flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parallel.parameters(), 1.0)
    optimizer.step()
    # One rank may have seen the signal or the file before the others, so they count votes.
    votes = torch.stack([loss.detach(), torch.tensor(float(bool(end_asked)), device=loss.device)])
    dist.all_reduce(votes)
    time.sleep(max(0.0, args.step_time - (time.monotonic() - begun_s)))
    return votes[0].item() / dist.get_world_size(), votes[1].item() > 0


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--step-time", type=float, default=0.0, help="seconds, at least, of one step")
    parser.add_argument("--batch", type=int, default=8, help="windows per rank and step")
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--text", type=Path, default=HERE / "corpus.txt")
    parser.add_argument("--save-to", type=Path, default=Path("checkpoints"))
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--resume", type=Path, help="a checkpoint")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    # The same sums in the same order every time; on a GPU also needs CUBLAS_WORKSPACE_CONFIG, see train.yaml.
    torch.use_deterministic_algorithms(True)
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    try:
        train(args, dist.get_rank(), device)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
