"""Whether the run folder is gone for good: removed, or a folder above it renamed, on a filesystem that answers.

A filesystem that does not answer is waited for. One that answers without the folder never brings it back: a person's
`rm -rf runs` or `git clean -fdx`, a purge of scratch. A mount point that is empty is neither: its filesystem is away.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

GONE_S = 60.0       # an NFS client remembers for up to a minute that a name is not there (nfs(5), acdirmax)
ALONE_S = 180.0     # for the word of another node; Slurm may start no step there
LEAST_LOOKS = 8     # a supervisor that stood still has not looked
ASK_EVERY_S = 30.0


class Spot(NamedTuple):
    """A name on the way to the run folder, as lstat(2) shows it: links and what they point to are places of their own.
    """

    path: str
    device: int
    inode: int


class Look(NamedTuple):
    """What a later look found: (device, inode) of each place up to the first that is missing, and whether the folder
    that should hold that one can be listed and lists it (None: it cannot).
    """

    ids: tuple[tuple[int, int], ...]
    is_listed: bool | None = None


def missing_at(route: Sequence[Spot], look: Look) -> str | None:
    """The path that is gone; None = all is there, or nobody can tell."""
    if not route or len(look.ids) >= len(route) or look.is_listed is not False:
        return None
    known = {place.path: place for place in route}
    for place, (device, inode) in zip(route, look.ids, strict=False):
        is_mount = place.device != _holder(known, place).device
        if device != place.device or (is_mount and inode != place.inode):
            return None   # another filesystem, or none, is mounted there now
    lost = route[len(look.ids)]
    # On another device than what holds it, it is a mount point, which an automounter makes and takes away.
    return lost.path if lost.device == _holder(known, lost).device else None


def _holder(known: Mapping[str, Spot], place: Spot) -> Spot:
    return known.get(posixpath.dirname(place.path), place)


class Missing(NamedTuple):
    """For how long each look has found the folder gone (monotonic seconds), and whether another node has said so."""

    path: str = ""
    since_s: float = 0.0
    looks: int = 0
    is_confirmed: bool = False
    asked_s: float = 0.0      # when another node was asked last

    def seen(self, path: str | None, now_s: float) -> Missing:
        """After one more look; one that does not find it gone begins anew."""
        if path is None or path != self.path:
            return Missing(path or "", now_s, int(path is not None))
        return self._replace(looks=self.looks + 1)


class Next(Enum):
    """What to do about a folder that is missing."""

    WATCH = "look again"
    ASK = "ask another node of the job"
    GONE = "it is gone"


def judge(missing: Missing, now_s: float, *, has_others: bool) -> Next:
    """The next step; `has_others`: another node of the job can be asked."""
    for_s = now_s - missing.since_s
    if missing.looks < LEAST_LOOKS or for_s < GONE_S:
        return Next.WATCH
    if missing.is_confirmed or not has_others or for_s >= ALONE_S:
        return Next.GONE
    return Next.ASK if now_s - missing.asked_s >= ASK_EVERY_S else Next.WATCH


# Exit codes of a helper step that looks on another node.
ELSEWHERE_GONE, ELSEWHERE_THERE = 0, 4


def tell(path: str, run_dir: str) -> str:
    """What is gone, for people."""
    return f"its run folder {run_dir} is gone" + (f" ({path} is no more)" if path != run_dir else "")
