"""Whether folders can be written at all, as far as that can be seen without writing into them."""

from __future__ import annotations

import os
from collections.abc import Iterable


def find_trouble(folders: Iterable[str]) -> str | None:
    """What keeps the first of the folders from being written; None = nothing that statvfs(3) shows.

    A quota does not show there, nor do the last blocks that only root may take. Blocks where the folder does.
    """
    for folder in folders:
        try:
            status = os.statvfs(folder)
        except FileNotFoundError:
            continue   # the training makes it
        except OSError as error:
            return f"{folder}: {error.strerror}"
        if status.f_flag & os.ST_RDONLY:
            return f"{folder} is mounted read-only"
        if status.f_blocks and not status.f_bavail:
            return f"{folder} is full"
        if status.f_files and not status.f_ffree:
            return f"{folder} has no inodes left"
    return None
