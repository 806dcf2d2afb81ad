"""What this host is called. Standard library, Python 3.9."""

from __future__ import annotations

import os


def short_host() -> str:
    """Its name without a domain, as Slurm's default for a node's."""
    return os.uname().nodename.split(".")[0]
