"""Acting as another user within a test that runs as root."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def acting_as(uid: int, gid: int = 0) -> Iterator[None]:
    """What happens meanwhile is done by this user, in this group; then this process is root again."""
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
