"""What this host is called, and what this process was started with. Standard library, Python 3.9."""

from __future__ import annotations

import os


def short_host() -> str:
    """Its name without a domain, as Slurm's default for a node's."""
    return os.uname().nodename.split(".")[0]


def is_coerced() -> bool:
    """Whether Python itself has set LC_CTYPE, which it does where no locale is set (PEP 538): a user's program that it
    starts would get it.
    """
    try:
        with open("/proc/self/environ", "rb") as environ:
            return "LC_CTYPE" in os.environ and b"\0LC_CTYPE=" not in b"\0" + environ.read()
    except OSError:
        return False
