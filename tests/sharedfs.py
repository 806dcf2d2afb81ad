"""A shared filesystem as nodes of a cluster see it, on one machine: each UTS namespace is a client of its own.

tests/sharedfs_server.py says what it shows. `SharedFs.set` changes what goes wrong while it is mounted.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import frozen


@dataclass
class SharedFs:
    """The mount at `path` over `behind`, which is the server's disk.

    `set` takes: late_s (names that others changed), attributes_late_s (size, times, links), replaced ("ESTALE", else
    the old file is seen), link_says_exists, errors ([{calls, errno, match, clients}]), away (true, or clients),
    clock_s, squash (root is nobody), cut_groups (at 16), rename_is_not_atomic, statfs. A client is the inode number of
    a UTS namespace.
    """

    path: Path
    behind: Path
    control: Path
    faults: dict[str, Any] = field(default_factory=dict)

    def set(self, **faults: Any) -> None:
        """What goes wrong from now on, beside what goes wrong already; None takes a fault away."""
        self.faults = {name: value for name, value in {**self.faults, **faults}.items() if value is not None}
        draft = self.control.with_suffix(".draft")
        draft.write_text(json.dumps(self.faults))
        draft.replace(self.control)

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        self.set(**dict.fromkeys(self.faults))


@contextlib.contextmanager
def mount_sharedfs() -> Iterator[SharedFs]:
    """A SharedFs of its own; unmounted and removed afterwards."""
    frozen._require("fusermount3", package="fuse3")
    pytest.importorskip("mfusepy", reason="the shared filesystem needs mfusepy (pip install .[dev])")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        frozen._skip("no /dev/fuse on this machine")
    with frozen._open_folder("safelaunch-sharedfs-") as folder:
        behind, path, control = folder / "behind", folder / "mnt", folder / "control.json"
        behind.mkdir()
        path.mkdir()
        behind.chmod(0o1777)
        shared = SharedFs(path, behind, control)
        shared.set()
        argv = [sys.executable, "-m", "tests.sharedfs_server", str(behind), str(path), str(control)]
        with (folder / "server.log").open("wb") as log:
            server = subprocess.Popen(argv, cwd=Path(__file__).parents[1], start_new_session=True,
                                      env={**os.environ, "FUSE_LIBRARY_NAME": "fuse3"},   # which the tests install
                                      stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            frozen._wait_until_mounted(path, server)
            yield shared
        finally:
            shared.clear()
            frozen._unmount(path)
            frozen._end(server)


@pytest.fixture
def shared_fs() -> Iterator[SharedFs]:
    """A shared filesystem on which nothing goes wrong yet."""
    with mount_sharedfs() as shared:
        yield shared


class Node:
    """A process on another machine, as the filesystem sees it: it has a UTS namespace of its own."""

    def __init__(self, *, uid: int | None = None, gid: int | None = None, groups: list[int] | None = None) -> None:
        agent = ("import sys\nfor line in sys.stdin:\n"
                 "    exec(bytes.fromhex(line).decode(), globals())\n    sys.stdout.flush()")
        self._process = subprocess.Popen(
            ["unshare", "--uts", "--", sys.executable, "-c", agent], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, cwd=Path(__file__).parents[1])
        if uid is not None:
            self.run(f"import os; os.setgroups({groups or []}); os.setgid({gid or uid}); os.setuid({uid}); print(0)")

    def send(self, code: str) -> None:
        """Let it run code that prints one line of JSON."""
        assert self._process.stdin is not None
        self._process.stdin.write(("import json\n" + code).encode().hex() + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """What it printed."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the node died: {self._process.wait(60)}"
        return json.loads(line)

    def run(self, code: str) -> Any:
        """Both."""
        self.send(code)
        return self.answer()

    def value(self, expression: str) -> Any:
        """What an expression gives; "ESTALE" and the like where it fails."""
        return self.run(
            "import errno, os\nfrom pathlib import Path\ntry:\n    said = " + expression
            + "\nexcept OSError as error:\n    said = errno.errorcode[error.errno]\nprint(json.dumps(said))")

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
        self._process.kill()
        self._process.wait(60)
        self._process.stdout.close()


@pytest.fixture
def nodes() -> Iterator[list[Node]]:
    """Three machines."""
    made = [Node() for _ in range(3)]
    yield made
    for node in made:
        node.close()
