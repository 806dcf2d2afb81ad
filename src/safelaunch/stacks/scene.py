"""What a verdict on a hang is made of: all ranks, where they are, who is not where the others are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from safelaunch.base.model import Silent
from safelaunch.stacks.activity import (
    BACKWARD,
    COLLECTIVE,
    NOTHING,
    RENDEZVOUS,
    Activity,
    classify,
    is_in_backward,
)
from safelaunch.stacks.parallel import Sizes
from safelaunch.stacks.ranks import NodeReport, ObservedRank, Stack
from safelaunch.stacks.stacks import GONE, STUCK, UNREADABLE, RankGroup, fold_numbers

ENOUGH = 4       # ranks, of which one may be the one that keeps the others waiting
COMPUTES = 0.3   # of a core; polling each 2 ms takes 0.05
_DEVICE = ("/dev/nvidia", "nv", "uvm_", "os_acquire")


class Odd(NamedTuple):
    """A rank that is not where the others are, and why it is held to be odd."""

    number: int | None
    node: str
    pid: int
    why: str

    @property
    def name(self) -> str:
        return f"rank {'?' if self.number is None else self.number}{f' on {self.node}' if self.node else ''}"


class HangVerdict(NamedTuple):
    """`kind`: storage | deadlock | data_loading | network | gpu | process | moving | unknown.

    `witnesses` confirm a hang besides silence: still_stacks (the same in all samples), asleep (and no main thread ran
    in between), silent_rank (it did not run, unlike others that poll), process_state, gpu_pattern, silent_nodes,
    missing_ranks.
    """

    kind: str
    summary: str
    confidence: float
    odd: tuple[Odd, ...] = ()
    suspects: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    witnesses: tuple[str, ...] = ()
    category: str = "hang"
    folders: tuple[str, ...] = ()    # of the files that ranks sleep on, and mounts that do not answer


class Scene(NamedTuple):
    """The facts for the rows."""

    groups: tuple[RankGroup, ...]
    reports: tuple[NodeReport, ...]
    silent: tuple[Silent, ...]
    sizes: Sizes | None
    at: dict[int, Activity]           # by the group's place in `groups`
    missing: tuple[int, ...]          # numbers that no node reported

    @property
    def ranks(self) -> tuple[ObservedRank, ...]:
        return tuple(rank for group in self.groups for rank in group.ranks)

    @property
    def mute(self) -> tuple[str, ...]:
        """Nodes that were asked and did not answer."""
        return tuple(one.node for one in self.silent if one.is_node_mute)

    def of(self, *kinds: str) -> list[RankGroup]:
        """Groups that are at something of these kinds, and readable."""
        return [group for number, group in enumerate(self.groups) if self.at[number].kind in kinds]

    def what(self, group: RankGroup) -> Activity:
        """What a group is at."""
        return self.at[self.groups.index(group)]


def activity_of(stack: Stack, ranks: Iterable[ObservedRank]) -> Activity:
    """What ranks with this stack are at. A backward pass in which nothing runs is DistributedDataParallel's all-reduce,
    of which no stack shows a frame: with gloo it waits inside of the engine.
    """
    if is_in_backward(stack) and all(rank.ran is False and not computes(rank) and not rank.gpu_util for rank in ranks):
        return Activity(COLLECTIVE, BACKWARD)
    return classify(stack)


def main_wait(scene: Scene) -> RankGroup | None:
    """The largest group of ranks that wait for others."""
    waiting = [group for group in scene.of(COLLECTIVE, RENDEZVOUS) if group.kind == STUCK]
    return max(waiting, key=lambda group: group.size, default=None)


def odd_groups(scene: Scene) -> list[RankGroup]:
    """Groups that are not in the collective in which most wait; moving ones count, unreadable ones tell nothing."""
    most = main_wait(scene)
    if most is None:
        return []
    wait = scene.what(most)
    return [group for number, group in enumerate(scene.groups) if group.kind not in (UNREADABLE, GONE)
            and not group.where and scene.at[number].kind != NOTHING and scene.at[number] != wait]


def by_number(most: RankGroup, groups: list[RankGroup]) -> tuple[RankGroup, list[RankGroup]]:
    """The group in which most wait, and the others. In DistributedDataParallel's backward pass ranks wait for each
    other without a collective on the stack: a few that are in one beside them are the odd ones.
    """
    larger = [group for group in groups if group.kind == STUCK and group.size > most.size
              and is_in_backward(group.stack) and not any(map(computes, group.ranks))]
    if not larger:
        return most, groups
    return larger[0], [most, *(group for group in groups if group is not larger[0])]


def missing_ranks(ranks: Iterable[ObservedRank]) -> tuple[int, ...]:
    """Numbers below WORLD_SIZE that no process has; () where a rank has no number."""
    numbers = {rank.number for rank in ranks}
    world = max((rank.world or 0 for rank in ranks), default=0)
    if None in numbers or len(numbers) >= world:
        return ()
    return tuple(number for number in range(world) if number not in numbers)


def computes(rank: ObservedRank) -> bool:
    """Whether it uses a core, as far as is known. A loop that polls is at this line or at that, and mostly asleep."""
    return rank.cpu is None or rank.cpu >= COMPUTES


def is_asleep(ranks: Iterable[ObservedRank]) -> bool:
    """Whether no main thread ran between the samples, except one of ten, or the one that the others wait for. The
    kernel shows it also for a rank whose stack cannot be read (/proc/PID/status).
    """
    looked = [rank for rank in ranks if rank.ran is not None]
    slept = sum(rank.ran is False for rank in looked)
    return bool(looked) and slept >= len(looked) - max(len(looked) // 10, len(looked) >= ENOUGH)


def is_device(rank: ObservedRank) -> bool:
    """Whether it sleeps in D state in the GPU's driver."""
    place = rank.stuck_in
    return place is not None and (place.path.startswith(_DEVICE[0]) or place.wchan.startswith(_DEVICE[1:])
                                  or any(name.startswith(("nvidia", "uvm_", "_nv")) for name in rank.kernel[:6]))


def behind_in_flight(ranks: Iterable[ObservedRank]) -> list[ObservedRank]:
    """Ranks whose newest collective is older than the others', where they are few."""
    known = [rank for rank in ranks if rank.flight is not None]
    newest = max((rank.flight or 0 for rank in known), default=0)
    low = [rank for rank in known if (rank.flight or 0) < newest]
    return low if low and len(low) * 4 <= len(known) else []


def names_of(ranks: Sequence[ObservedRank]) -> str:
    """For people: "rank 3 on n1", "12 ranks (0-11)"."""
    return ranks[0].name if len(ranks) == 1 else f"{len(ranks)} ranks ({numbers_of(rank.number for rank in ranks)})"


def odd_names(odd: Sequence[Odd]) -> str:
    """The same of odd ranks."""
    if len(odd) == 1:
        return odd[0].name
    return f"{len(odd)} ranks ({numbers_of(one.number for one in odd)})"


def numbers_of(numbers: Iterable[int | None]) -> str:
    """Folded numbers, cut off where they are many."""
    text = fold_numbers(number for number in numbers if number is not None)
    return text if len(text) <= 40 else text[:37] + "…"


def odd_one(rank: ObservedRank, why: str) -> Odd:
    """A rank as an odd one."""
    return Odd(rank.number, rank.node, rank.pid, why)
