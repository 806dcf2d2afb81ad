"""A ticket about a node on which processes are left that no SIGKILL ends: what its administrators need to know."""

from __future__ import annotations

from collections.abc import Sequence

from safelaunch.stacks.ranks import KernelPlace, ObservedRank
from safelaunch.stacks.scene import is_device

MOST_RANKS = 16
MOST_FUNCTIONS = 8


def render(node: str, why: str, ranks: Sequence[ObservedRank], *, job: str, run: str, user: str, when: str) -> str:
    """The ticket's text: a subject, facts, the processes as the kernel shows them, what is asked."""
    facts = [("Node", node), ("Time", when), ("Job", f"{job} ({run}) of {user}"), ("Finding", why)]
    shown = [line for rank in ranks[:MOST_RANKS] for line in _tell(rank)]
    more = [f"  and {len(ranks) - MOST_RANKS} more"] if len(ranks) > MOST_RANKS else []
    return "\n".join([
        f"Subject: node {node}: {len(ranks)} process{'es' if len(ranks) > 1 else ''} that no SIGKILL ends", "",
        *(f"{name + ':':<10}{text}" for name, text in facts), "", "Processes:", *shown, *more, "", _asked(ranks), ""])


def _tell(rank: ObservedRank) -> list[str]:
    place = rank.stuck_in or rank.main or KernelPlace(rank.pid, "", rank.states[-1:])
    words = [f"  pid {rank.pid}", f"rank {rank.number}" if rank.number is not None else "", f"state {place.state}",
             f"wchan {place.wchan}" if place.wchan else "", f"in {place.call}()" if place.call else "", place.path,
             f"mount {place.mount} ({place.fs})" if place.mount else ""]
    stack = f"    kernel: {' ← '.join(rank.kernel[:MOST_FUNCTIONS])}" if rank.kernel else ""
    return list(filter(None, [", ".join(filter(None, words)), stack]))


def _asked(ranks: Sequence[ObservedRank]) -> str:
    mounts = sorted({place.mount for rank in ranks for place in [rank.stuck_in] if place is not None and place.mount})
    if any(is_device(rank) for rank in ranks):
        what = "Please check the GPUs (dmesg for Xid, nvidia-smi -q)"
    elif mounts:
        what = f"Please check the file system on {', '.join(mounts)}"
    else:
        what = "Please check what these processes wait for"
    return (f"{what}, and restart the node if they do not end by themselves: until then the job stays in COMPLETING, "
            "and Slurm drains the node (\"Kill task failed\").")
