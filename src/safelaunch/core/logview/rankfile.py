"""Which file a line of a training's log goes to when the log is split into one for each rank."""

from __future__ import annotations

import re

from safelaunch.core.logview.parts import PREFIX

OTHER = "other.log"   # lines of no rank: of launchers, of srun, of safelaunch
_HOST = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._-]*")   # the log says it, and it becomes part of a file's name


def rank_file(line: bytes, nodes: tuple[str, ...], per_node: int | None) -> str:
    """`rank-5-n1.log` of a line that begins with "[n1:…]:".

    `nodes` are the attempt's, in Slurm's order; () where they are unknown. `per_node`: the ranks of a node where the
    launcher numbers them on each node; None where the number in the prefix is the global one.
    """
    found = PREFIX.match(line)
    if found is None or _HOST.fullmatch(found[2]) is None:
        return OTHER
    host, number = found[2].decode(), int(found[3])
    if nodes and host not in nodes:
        return OTHER
    if per_node is None:
        return f"rank-{number}-{host}.log"
    if number >= per_node:
        return OTHER
    return f"rank-{nodes.index(host) * per_node + number}-{host}.log" if nodes else f"local-rank-{number}-{host}.log"
