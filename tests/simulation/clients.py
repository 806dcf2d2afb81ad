"""What each host sees of the shared folder: a view of its own. Names that others made, moved or removed are late there.

As NFS clients show it (nfs(5), "Data and metadata coherence"): a directory's names are remembered for seconds to a
minute, those that are not there included; a file that is open or opened by a name that is known has the server's bytes.
A host that changes a directory itself sees all of it as it is.

The view is a tree of hard links to the server's files. The path that the project's code knows is a symbolic link, which
points to the server's own tree, and to a host's view for as long as that host reads.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from safelaunch.node import fresh
from safelaunch.run.io import journal
from tests.simulation.clock import Clock

# Below the simulation's folder: the run folder, the working directory with checkpoints, and the folder of another run.
SHOWN = ("run", "work", "before")


class Client:
    """One host's view. `late_s`: a directory is looked at anew after so long, at the latest; 0 = at each look."""

    def __init__(self, clock: Clock, rng: random.Random, place: Path, name: str, late_s: float) -> None:
        self._clock, self._rng, self._late_s = clock, rng, late_s
        self._place, self._name = place, name
        self._server, self._view = f"{place}/server", f"{place}/views/{name}"
        self._known: dict[str, float] = {}    # directories, and until when their names are taken for true

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Until its end the folder's paths show what this host sees."""
        if not self._late_s:
            yield
            return
        for name in SHOWN:
            self._look(name)
        self._show(f"views/{self._name}")
        _READS.client = self
        try:
            yield
        finally:
            _READS.client = None
            self._show("server")

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """In the midst of reading: what is done until its end is done at the server."""
        self._show("server")
        try:
            yield
        finally:
            self._show(f"views/{self._name}")

    def refresh(self, folder: Path) -> None:
        """Somebody here asks for a directory as it is (node.fresh)."""
        self._see(folder)

    def changed(self, path: Path) -> None:
        """This host has changed the directory in which `path` lies, and sees it as it is, and those above it."""
        self._see(path.parent)

    def _see(self, folder: Path) -> None:
        if self._late_s:
            name = str(folder.relative_to(self._place))
            parts = name.split("/")
            for count in range(1, len(parts) + 1):
                self._read("/".join(parts[:count]))

    def _look(self, folder: str) -> None:
        if self._clock.t >= self._known.get(folder, -1.0):
            self._read(folder)
        with contextlib.suppress(FileNotFoundError), os.scandir(f"{self._view}/{folder}") as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    self._look(f"{folder}/{entry.name}")

    def _read(self, folder: str) -> None:
        """The server's names of one directory take the place of those that were known."""
        there = _entries(f"{self._server}/{folder}")
        mine = _entries(f"{self._view}/{folder}")
        if there is None:
            return
        if mine is None:
            os.makedirs(f"{self._view}/{folder}")
            mine = {}
        for name in mine.keys() - there.keys():
            _remove(f"{self._view}/{folder}/{name}")
        for name, entry in there.items():
            path = f"{self._view}/{folder}/{name}"
            if entry.is_dir(follow_symlinks=False):
                if name not in mine:
                    os.mkdir(path)
            elif name not in mine or mine[name].inode() != entry.inode():
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                os.link(entry.path, path)
        self._known[folder] = self._clock.t + self._late_s * self._rng.uniform(0.05, 1.0)

    def _show(self, where: str) -> None:
        for name in SHOWN:
            draft = f"{self._place}/.{name}"
            os.symlink(f"{where}/{name}", draft)
            os.replace(draft, f"{self._place}/{name}")


class _Reads:
    """Whose view is shown now."""

    client: Client | None = None


_READS = _Reads()


@contextlib.contextmanager
def writes_reach_the_server() -> Iterator[None]:
    """What a child writes while it reads (a watch's claim and lines) is written at the server, not into its view."""
    with (mock.patch.object(fresh, "see", _see),
          mock.patch.object(journal.Direct, "append", _through(journal.Direct.append)),
          mock.patch.object(journal.Direct, "publish", _through(journal.Direct.publish))):
        yield


def _see(*folders: str) -> None:
    client = _READS.client
    if client is not None:
        for folder in folders:
            client.refresh(Path(folder))


def _through(write: Callable[..., Any]) -> Callable[..., Any]:
    def do(direct: journal.Direct, name: str, data: bytes, deadline_s: float = 2.0) -> Any:
        client = _READS.client
        if client is None:
            return write(direct, name, data, deadline_s)
        with client.writing():
            done = write(direct, name, data, deadline_s)
        client.changed(direct.root / name)
        return done
    return do


def make_server(place: Path) -> None:
    """The server's tree, and the paths that the project's code knows."""
    for name in SHOWN:
        if name != "before":   # where the run waits for one
            (place / "server" / name).mkdir(parents=True)
        (place / name).symlink_to(f"server/{name}")


def _entries(folder: str) -> dict[str, os.DirEntry[str]] | None:
    try:
        with os.scandir(folder) as entries:
            return {entry.name: entry for entry in entries}
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise
        return None


def _remove(path: str) -> None:
    if os.path.isdir(path):
        for name in os.listdir(path):
            _remove(f"{path}/{name}")
        os.rmdir(path)
    else:
        os.unlink(path)
