"""Bytes written to a file so that they survive a power cut."""

from __future__ import annotations

import os


def write(descriptor: int, data: bytes) -> None:
    """Write all of `data`, and fsync; raises OSError. A full disk takes a part first, then says ENOSPC."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view):]
    os.fsync(descriptor)
