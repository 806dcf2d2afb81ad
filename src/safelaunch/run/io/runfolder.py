"""The run folder, as every verb reads it. Its layout is a public contract (docs/run-folder.md)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.base.io import modes, openfolder, owners, sharedfile
from safelaunch.base.model import RESTARTS, STOPS, Request
from safelaunch.errors import RunFolderError
from safelaunch.run import plan as plans
from safelaunch.run.io import journal
from safelaunch.run.journal import Journal
from safelaunch.run.plan import Plan

if TYPE_CHECKING:
    from safelaunch.run.fold.state import State

FOLLOWED = "followed"   # another run waits for this one's end
SAVE = "save"   # the training takes it, by removing the file (verbs.control.saving)
LAST_STEPS = 36   # that pace and trend look at (status.costs)
REQUESTS = (*STOPS, *RESTARTS, "hold", "release", "extend", SAVE, FOLLOWED)
FOLDERS = ("journal", "attempts", "claims")
MOST_NAME = 64
_NAME = re.compile(f"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MOST_NAME - 1}}}")   # config.keys.NAME_PATTERN, slow to import


class Run(NamedTuple):
    """A run on disk: its folder, the request (run.json), and the plan made of it."""

    dir: Path
    meta: Mapping[str, Any]
    plan: Plan

    @property
    def cluster(self) -> str:
        """Slurm's ClusterName where it was submitted; "" = a local run, or not known."""
        return str(self.meta.get("cluster_name") or "")

    def journal(self) -> Journal:
        """All writers' events, merged, to be shown, the steps of long attempts sampled: a file that refuses is among
        the problems.
        """
        return journal.read(self.dir, LAST_STEPS, with_course=True, partly=True)

    def state(self, partly: bool = False) -> State:
        """The state computed from the journal; it keeps only the last progress line. `partly`: also where a file of the
        journal refuses, for what is only shown.
        """
        from safelaunch.run.fold.folding import fold  # not what submit needs

        return fold(journal.read(self.dir, steps_kept=1, partly=partly).events)

    @property
    def log_files(self) -> list[Path]:
        """main.log of each attempt, in order; none that is a link or a pipe, and none of `closed_logs`."""
        return [path for path in self._logs() if os.access(path, os.R_OK)]

    @property
    def closed_logs(self) -> list[Path]:
        """Those that this user may not read."""
        return [path for path in self._logs() if not os.access(path, os.R_OK)]

    def _logs(self) -> list[Path]:
        return list(filter(sharedfile.is_file, sharedfile.listing(self.dir / "attempts", "[0-9]*/main.log")))


OWN_FOLDER = "name a folder of your own: run_dir=FOLDER (as a word of the command line, or a key of train.yaml)"


def load(run_dir: Path) -> Run:
    """The run in a folder; raises RunFolderError when there is none."""
    try:
        meta = sharedfile.read_json(run_dir / "run.json")
        if "\\u0000" in json.dumps([meta["config"], meta["run_id"]]):   # no path and no argument can hold it
            raise ValueError("a NUL in it")
        for key, name in (("name", meta["config"]["name"]), ("run_id", meta["run_id"])):   # both become parts of paths
            if not _NAME.fullmatch(name):
                raise ValueError(f"its {key} is none: {name[:MOST_NAME]!r}")
        return Run(run_dir, meta, plans.of_config(meta["config"], meta["run_id"]))
    except FileNotFoundError as error:
        raise RunFolderError(f"{run_dir} holds no run (no run.json)") from error
    except PermissionError as error:
        raise RunFolderError(f"you may not read the run in {run_dir}: it is {_owner(run_dir)}'s",
                             hint="a run with kill_switch.group is open to that group") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        what = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise RunFolderError(f"{run_dir}/run.json cannot be read: {what}") from error


def read_env(run_dir: Path) -> dict[str, str]:
    """The environment saved at the first submit."""
    pairs = sharedfile.read(run_dir / "submit.env").split(b"\0")
    return dict(pair.decode(errors="surrogateescape").split("=", 1) for pair in pairs if b"=" in pair)


def read_requests(run_dir: Path, kill_file: str) -> list[tuple[str, str, float]]:
    """(name, who, when) of every touched control file; blocks where the folder does.

    Raises OSError where control/ itself does not answer: then a request is neither there nor absent. Members of the
    group may also put something else under a name. Then a stop or a hold counts as touched, whatever it is, and what
    prolongs or releases does not. No name keeps the others from being read.
    """
    control = f"{run_dir}/control"
    found = []
    for name, path in (*((name, f"{control}/{name}") for name in REQUESTS), ("kill", kill_file)):
        try:
            touched = _look(path)
        except OSError:
            if path.startswith(f"{control}/"):
                raise
            continue   # the folder of a kill_switch.file elsewhere is closed, or gone
        if touched is None or not (touched.is_plain or name in (*STOPS, "hold")):
            continue
        if (name, touched.who, touched.t) not in found:
            found.append((name, touched.who, touched.t))
    return found


class _Touched(NamedTuple):
    who: str
    t: float
    is_plain: bool   # a regular file, as `touch` makes


def _look(path: str) -> _Touched | None:
    """Owner, time and kind of a control file (lstat); None = there is none. OSError where even its folder fails."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:   # sick or hidden, in a folder that answers: something is there
        return _Touched("somebody", os.lstat(f"{os.path.dirname(path)}/.").st_mtime, is_plain=False)   # noqa: PTH120
    return _Touched(owners.name_of(status.st_uid), status.st_mtime, stat.S_ISREG(status.st_mode))


def is_orphaned(run_dir: Path, job: str) -> bool:
    """Whether a supervisor or a guard of this run has noted that it cancels an orphaned job.

    Only the owner's own file counts: else another member of kill_switch.group could undo the owner's scancel.
    """
    try:
        status = (run_dir / "control" / f"orphaned-{job}").lstat()
        return stat.S_ISREG(status.st_mode) and status.st_uid == run_dir.stat().st_uid
    except FileNotFoundError:
        return False


def request(run_dir: Path, name: str, note: str) -> bool:
    """Touch a control file in the run's own name; a new one holds `note`, for its readers. Whether it is new."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with openfolder.inside(run_dir, "control") as control:
        try:
            descriptor = os.open(name, flags, modes.FILE, dir_fd=control)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "w") as file:
            modes.open_to_group(descriptor, control)
            file.write(note + "\n")
    return True


def folder_id(run_dir: Path) -> list[int]:
    """Device and inode: they tell this folder from another of the same name."""
    status = run_dir.stat()
    return [status.st_dev, status.st_ino]


def requests_of(listed: list[Any]) -> tuple[Request, ...]:
    """Requests from `read_requests`, whose answer has gone through JSON."""
    return tuple(Request(str(name), str(who), float(t)) for name, who, t in listed)


def closed_to(gid: int, folders: Iterable[Path]) -> list[Path]:
    """Those of the folders that do not let members of a group pass."""
    return [path for path in folders if not _can_pass(path, gid)]


def _can_pass(path: Path, gid: int) -> bool:
    """Whether members of a group may pass through a folder, by its mode or its access list."""
    status = path.stat()
    if status.st_mode & stat.S_IXOTH or (status.st_gid == gid and status.st_mode & stat.S_IXGRP):
        return True
    with contextlib.suppress(OSError):
        return _acl_lets_pass(os.getxattr(path, "system.posix_acl_access"), gid)
    return False


def _acl_lets_pass(acl: bytes, gid: int) -> bool:
    """Whether a POSIX ACL (linux/posix_acl_xattr.h: version, then tag, perm, id) has an entry x for the group."""
    entries = [(int.from_bytes(acl[i:i + 2], "little"), int.from_bytes(acl[i + 2:i + 4], "little"),
                int.from_bytes(acl[i + 4:i + 8], "little")) for i in range(4, len(acl), 8)]
    group, mask = 0x08, 0x10
    masks = [perm for tag, perm, _ in entries if tag == mask]
    allowed = masks[0] if masks else 7
    return any(tag == group and who == gid and perm & allowed & 1 for tag, perm, who in entries)


def attempt_folder(number: int) -> str:
    """Name of an attempt's folder below the run folder."""
    return f"attempts/{number:04d}"


def _owner(path: Path) -> str:
    """A folder's owner, as far as its parents show it."""
    try:
        return owners.name_of(path.stat().st_uid)
    except OSError:
        return "somebody else"
