"""Which ranks talk to each other: tensor, data and pipeline groups of a training whose sizes are known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from safelaunch.errors import UsageError

# Megatron-LM's and NeMo's options, torchtitan's, and fairseq's, whose one size is that of the tensor groups.
_OPTIONS = {
    "tp": re.compile(r"(?:tensor[-_](?:model[-_])?parallel[-_](?:size|degree)|(?<![\w-])--model[-_]parallel[-_]size)"
                     r"[= ](\d+)"),
    "pp": re.compile(r"pipeline[-_](?:model[-_])?parallel[-_](?:size|degree)[= ](\d+)"),
    "cp": re.compile(r"context[-_]parallel[-_](?:size|degree)[= ](\d+)"),
}


class Sizes(NamedTuple):
    """Sizes of the parallel groups, in Megatron's order: tensor ranks are neighbours, pipeline stages far apart.

    Source: Megatron-LM, parallel_state.py (order "tp-cp-ep-dp-pp"). dp follows from the number of ranks.
    """

    tp: int = 1
    pp: int = 1
    cp: int = 1

    def groups(self, world: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        """(name, ranks) of every group with more than one rank; pipelines last, their stages differ rightly."""
        inner = self.tp * self.cp
        stage = world // self.pp
        if not stage or world % (inner * self.pp):
            return
        for first in range(0, world, self.tp if self.tp > 1 else world):
            if self.tp > 1:
                yield f"tensor group {first // self.tp}", tuple(range(first, first + self.tp))
        if stage // inner > 1:
            for start in range(0, world, stage):
                for offset in range(inner):
                    members = tuple(range(start + offset, start + stage, inner))
                    yield f"data group {offset} of stage {start // stage}", members
        if self.pp > 1:
            for first in range(stage):
                yield f"pipeline {first}", tuple(range(first, world, stage))


def sizes_of_command(text: str) -> Sizes | None:
    """Sizes that a rank's command line gives; None where none of them is above 1."""
    found = {key: int(match[1]) for key, option in _OPTIONS.items() if (match := option.search(text))}
    return Sizes(**found) if any(size > 1 for size in found.values()) else None


def parse_sizes(text: str) -> Sizes:
    """Sizes of "tp=4,pp=12"; raises UsageError."""
    found: dict[str, int] = {}
    for part in filter(None, text.replace(" ", "").split(",")):
        key, _, value = part.partition("=")
        if key not in ("tp", "pp", "cp", "dp") or not value.isdigit() or not int(value):
            raise UsageError(f"--parallel {text}: {part!r} is not tp=, pp= or cp= and a number",
                             hint="such as tp=4,pp=12")
        found[key] = int(value)
    found.pop("dp", None)   # follows from the others
    return Sizes(**found)
