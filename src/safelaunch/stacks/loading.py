"""Ranks that wait for their data loader: the row of the verdict that names them, and what their workers are at."""

from __future__ import annotations

from safelaunch.stacks.activity import COLLECTIVE, DATA, GPU
from safelaunch.stacks.placetext import tell_place, worker_of
from safelaunch.stacks.ranks import ObservedRank
from safelaunch.stacks.scene import HangVerdict, Scene, names_of, odd_one
from safelaunch.stacks.stacks import STUCK


def ranks_at_data(scene: Scene) -> HangVerdict | None:
    """Some ranks or all wait for their data, and the others for them."""
    loading = [group for group in scene.of(DATA) if group.kind == STUCK]
    if not loading:
        return None
    ranks = [rank for group in loading for rank in group.ranks]
    rest = [group for group in scene.groups if group.kind == STUCK and group not in loading]
    others = sum(group.size for group in rest)
    odd = tuple(odd_one(rank, "waits for its data loader" + worker_of(rank)) for rank in ranks) if others else ()
    nodes = tuple(dict.fromkeys(rank.node for rank in ranks))
    verb, them = ("waits", "it") if len(ranks) == 1 else ("wait", "them")
    what = "and nobody waits for others"
    if rest:
        is_known = scene.what(rest[0]).kind in (COLLECTIVE, GPU)
        what = f"while {others} wait for {them} in {'a collective' if is_known else tell_place(rest[0].stack)}"
    # A loader that waits in its own code says nothing of the node; a file's call and a worker that has died do.
    is_one_node = bool(others) and len(nodes) == 1 < len(scene.reports) and any(
        waits_for_file(rank) or any(place.state == "Z" for place in rank.below) for rank in ranks)
    place = tell_place(loading[0].stack)
    place = place if len(ranks) == 1 else place.replace("its ", "their ", 1)
    return HangVerdict("data_loading", f"{names_of(ranks)} {verb} for {place}, {what}",
                       0.85 if others else 0.7, odd, nodes if is_one_node else ())


def waits_for_file(rank: ObservedRank) -> bool:
    """Whether it, or a process below it such as a data loader's worker, is in a file's call."""
    return any(place is not None and (place.state == "D" or (place.mount and place.path))
               for place in (rank.main, *rank.blocked, *rank.below))
