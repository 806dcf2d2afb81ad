"""What stands for sbatch, scontrol, squeue, sacct and scancel in a user's own script, on this node's own disk."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safelaunch.base.io import modes
from safelaunch.node.standin import links
from safelaunch.node.standin.ownjob import FACTS, NAMES

TEXT = "slurm_script.next"   # the script as it is by now
MAIN = Path(__file__).parents[2] / "node" / "standin" / "main.py"
# A shell's start is a fifth of Python's, and where Python cannot start the real command still runs. So it does for
# what is about no job: `scontrol show hostnames`, which most scripts call, and nodes, partitions and the like.
_STUB = """#!/bin/sh
here=${{0%/*}}
case {name}:$1:$2 in
scontrol:show:host* | scontrol:show:node* | scontrol:show:part* | scontrol:show:conf* | scontrol:show:res*) ;;
scontrol:show:lic* | scontrol:ping:*) ;;
*) [ -x {python} ] && [ -r {main} ] && exec {python} -I -S {main} "$here" {name} "$@" ;;
esac
set -f
IFS=:
for folder in $PATH; do
  [ "$folder" = "$here" ] || found=$found:$folder
done
PATH=${{found#:}}
exec {name} "$@"
"""


def put(local: Path, own: Mapping[str, Any]) -> None:
    """Make the stubs, beside the one of srun, with the facts of the attempt; without them the script runs as well."""
    folder = local / "bin"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        for name in NAMES:
            stub = folder / name
            if not stub.exists():
                python, main = shlex.quote(sys.executable), shlex.quote(str(MAIN))
                stub.write_text(_STUB.format(python=python, main=main, name=name))
                modes.set_mode(stub, 0o700)
        (local / TEXT).write_text(str(own.get("text", "")), errors="surrogateescape")
        draft = folder / f"{FACTS}.{os.getpid()}"
        draft.write_text(json.dumps({**own, "text": ""}))
        draft.replace(folder / FACTS)


def read_links(local: Path, attempt: int) -> list[dict[str, Any]]:
    """What the script has asked to go on with."""
    return links.read(links.path_of(str(local), attempt))
