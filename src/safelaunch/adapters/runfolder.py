"""The run folder: made once at submit, read by every verb. Its layout is a public contract (docs/run-folder.md)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import json
import os
import pwd
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from safelaunch.adapters import durable, journal, modes, sharedfile
from safelaunch.core import plan as plans
from safelaunch.core.journal import Journal
from safelaunch.core.model import STOPS, Request
from safelaunch.core.plan import Plan
from safelaunch.core.records import NamedTuple
from safelaunch.errors import RunFolderError

if TYPE_CHECKING:
    from safelaunch.core.state import State

FOLLOWED = "followed"   # another run waits for this one's end
REQUESTS = (*STOPS, "hold", "release", "extend", FOLLOWED)
FOLDERS = ("journal", "attempts", "claims")
DRAFT = ".run.json"
BEGUN = ".begun"   # who makes the folder, until run.json is there
_BEFORE_RUN_JSON = ("job.sbatch", "submit.env", f"control/{FOLLOWED}", DRAFT, BEGUN)


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
        """All writers' events, merged."""
        return journal.read(self.dir)

    def state(self) -> State:
        """The state computed from the journal; it keeps only the last progress line."""
        from safelaunch.core.folding import fold  # not what submit needs

        return fold(journal.read(self.dir, steps_kept=1).events)

    @property
    def log_files(self) -> list[Path]:
        """main.log of each attempt, in order; none that is a link or a pipe."""
        return sorted(filter(sharedfile.is_file, (self.dir / "attempts").glob("[0-9]*/main.log")))


OWN_FOLDER = "name a folder of your own: run_dir=FOLDER (as a word of the command line, or a key of train.yaml)"


def create(
    run_dir: Path, meta: Mapping[str, Any], plan: Plan, script: str, env: Mapping[str, str], *,
    is_followed: bool = False, when_there: Callable[[], object] = lambda: None,
) -> Run:
    """Make the run folder with all that submit knows, durably. `is_followed`: another run will wait for this one's end;
    `when_there`: called once other processes see the run, before it is durable. Raises RunFolderError; nothing
    half-made is left.
    """
    made: list[Path] = []
    try:
        if _is_there(run_dir / "run.json"):
            raise RunFolderError(f"{run_dir} already holds a run", hint="choose another name or run_dir, or remove it")
        _make_folders(run_dir, plan, made)
        _begin(run_dir, made)
        variables = "\0".join(f"{key}={value}" for key, value in sorted(env.items()))
        with durable.SyncLater() as sync:   # all at once: a filesystem writes files that wait together in one go
            _write(run_dir / "job.sbatch", script.encode(), made, modes.PROGRAM, sync=sync.add)
            _write(run_dir / "submit.env", variables.encode(errors="surrogateescape"), made, sync=sync.add)
            if is_followed:
                _write(run_dir / "control" / FOLLOWED, b"", made, for_group=True, sync=sync.add)
            _write(run_dir / DRAFT, _render_meta(meta), made, for_group=True, sync=sync.add)
            made.append(_publish(run_dir / DRAFT, run_dir / "run.json"))   # one that is killed leaves no half
            when_there()
            sync.now()
        (run_dir / BEGUN).unlink()
    except RunFolderError:
        _unmake(made)
        raise
    except OSError as error:
        _unmake(made)
        closed = isinstance(error, PermissionError)
        raise RunFolderError(f"cannot make the run folder {run_dir}: {error.strerror or error}"
                             f"{f' ({error.filename})' if error.filename else ''}; nothing was submitted",
                             hint=OWN_FOLDER if closed else "choose another run_dir, or free some space") from error
    return Run(run_dir, meta, plan)


def keep_git(run_dir: Path, facts: Mapping[str, str]) -> None:
    """Write git.json, for the owner alone: a diff can hold anything of the working tree. Raises OSError."""
    _write(run_dir / "git.json", json.dumps(facts).encode() + b"\n", [])


def unmake(run_dir: Path) -> None:
    """Delete what `create`, and a submission that came to nothing, have made. Everything else in the folder stays."""
    made = [*run_dir.glob("journal/*.jsonl"), *run_dir.glob("claims/*"), run_dir / "job.out",
            *(run_dir / name for name in ("run.json", *_BEFORE_RUN_JSON)),
            *(run_dir / name for name in (*FOLDERS, "control"))]
    _unmake([run_dir, *reversed(made)])


def load(run_dir: Path) -> Run:
    """The run in a folder; raises RunFolderError when there is none."""
    try:
        meta = sharedfile.read_json(run_dir / "run.json")
        if "\\u0000" in json.dumps([meta["config"], meta["run_id"]]):   # no path and no argument can hold it
            raise ValueError("a NUL in it")
        return Run(run_dir, meta, plans.make(meta["config"], meta["run_id"]))
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
    """What has this name, without following it; None = nothing. Raises OSError where its folder does not answer either.
    """
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:   # sick or hidden, in a folder that answers: something is there
        return _Touched("somebody", os.lstat(f"{os.path.dirname(path)}/.").st_mtime, is_plain=False)   # noqa: PTH120
    return _Touched(name_of(status.st_uid), status.st_mtime, stat.S_ISREG(status.st_mode))


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
    try:
        descriptor = os.open(run_dir / "control" / name,
                             os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, modes.FILE)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "w") as file:
        modes.open_to_group(descriptor, run_dir / "control")
        file.write(note + "\n")
    return True


def folder_id(run_dir: Path) -> list[int]:
    """Device and inode: they tell this folder from another of the same name."""
    status = run_dir.stat()
    return [status.st_dev, status.st_ino]


def requests_of(found: list[Any]) -> tuple[Request, ...]:
    """Requests from `read_requests`, whose answer has gone through JSON."""
    return tuple(Request(str(name), str(who), float(t)) for name, who, t in found)


def name_of(uid: int) -> str:
    """A user's name; the number where the node does not know the name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_of(gid: int) -> str:
    """A group's name; the number where the node does not know the name."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _begin(run_dir: Path, made: list[Path]) -> None:
    """Note who makes this run, and delete what one that was killed meanwhile has left. Raises RunFolderError where that
    one may live.
    """
    mark, host = run_dir / BEGUN, os.uname().nodename
    draft = run_dir / f"{BEGUN}.{os.getpid()}"
    draft.unlink(missing_ok=True)   # of a dead process with this pid
    _write(draft, f"{host} {os.getpid()}".encode(), made, sync=bool)   # a power cut leaves no mark, or an empty one
    try:
        with mark.open("rb+") as old:
            _take_over(mark, old, host)
            for name in _BEFORE_RUN_JSON[:-1]:
                (run_dir / name).unlink(missing_ok=True)
            made.append(draft.replace(mark))
    except FileNotFoundError:
        made.append(_publish(draft, mark))


def _take_over(mark: Path, old: BinaryIO, host: str) -> None:
    """Keep others from a dead submission's mark while it is open; raises RunFolderError where that one may live."""
    with contextlib.suppress(OSError):   # not every filesystem has locks
        fcntl.flock(old, fcntl.LOCK_EX)
    who, _, pid = old.read().decode(errors="replace").partition(" ")
    is_another = not os.path.samestat(os.fstat(old.fileno()), mark.stat())   # one that was faster
    if is_another or (who and (who != host or not pid.isdecimal() or Path(f"/proc/{pid}").exists())):
        maker = "another process" if is_another else f"process {pid} of {who}"
        raise RunFolderError(f"{mark.parent} is being made by {maker}", hint=f"if that one has ended: rm {mark}")


def _publish(draft: Path, path: Path) -> Path:
    """Give a file that is whole its name; raises FileExistsError where another submission was faster."""
    if not durable.link(draft, path, lambda: sharedfile.holds(path, sharedfile.read(draft))):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    draft.unlink()
    return path


def _make_folders(run_dir: Path, plan: Plan, made: list[Path]) -> None:
    for path in [*reversed(run_dir.parents), run_dir]:
        if not path.exists():
            with contextlib.suppress(FileExistsError):   # the submission of another point of a sweep was faster
                path.mkdir(modes.FOLDER)
                made.append(path)
    run_dir.chmod(modes.FOLDER)   # an existing one may be open, or pass on a foreign group
    for name in (*FOLDERS, "control"):
        (run_dir / name).mkdir(modes.FOLDER, exist_ok=True)
        made.append(run_dir / name)
    if plan.kill_switch.group is not None:
        parents = [path for path in made if path in run_dir.parents]
        _share(run_dir, parents, plan.kill_switch.group)


def _unmake(made: list[Path]) -> None:
    for path in reversed(made):
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def _share(run_dir: Path, made_parents: list[Path], group: str) -> None:
    """Open the control folder to a group for writing and the rest for reading; make sure that its members can reach it.

    The setgid bit passes the group on to all that is made later, by the job as well. The sticky bit keeps a member from
    deleting another's request: inode(7).
    """
    try:
        gid = grp.getgrnam(group).gr_gid
    except KeyError:
        raise RunFolderError(f"kill_switch.group: there is no group {group!r} on this machine") from None
    folders = {**dict.fromkeys(made_parents, 0o750),
               **dict.fromkeys((run_dir, *(run_dir / name for name in FOLDERS)), modes.GROUP_FOLDER),
               run_dir / "control": modes.GROUP_CONTROL}
    try:
        for path, mode in folders.items():
            os.chown(path, -1, gid)
            path.chmod(mode)
    except PermissionError:
        raise RunFolderError(f"kill_switch.group: you are not in the group {group!r}",
                             hint="name a group that `id` shows, or leave kill_switch.group out") from None
    if closed := closed_to(gid, run_dir.parents):
        raise RunFolderError(
            f"members of {group!r} cannot reach the kill switch: {closed[-1]} does not let them pass",
            hint=f"type: chgrp {group} {closed[-1]} && chmod g+x {closed[-1]}   "
                 f"(or: setfacl -m g:{group}:x {closed[-1]})")


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


def _write(path: Path, data: bytes, made: list[Path], mode: int = modes.FILE, *, for_group: bool = False,
           sync: durable.Sync = os.fsync) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    made.append(path)
    try:
        if for_group:
            modes.open_to_group(descriptor, path.parent)
        durable.write(descriptor, data, sync)
    finally:
        os.close(descriptor)


def _render_meta(meta: Mapping[str, Any]) -> bytes:
    """run.json for people to read, a line for each key; escaped where something in it, such as the folder of the
    submit, is not UTF-8. By hand: `indent` makes the encoder ten times slower.
    """
    try:
        return _lines(meta, json.JSONEncoder(ensure_ascii=False).encode).encode()
    except UnicodeEncodeError:
        return _lines(meta, json.dumps).encode()


def _lines(meta: Mapping[str, Any], dump: Callable[[Any], str]) -> str:
    texts: dict[int, str] = {}   # most values are there many times: an origin, None

    def text_of(value: Any) -> str:
        if id(value) not in texts:
            texts[id(value)] = dump(value)
        return texts[id(value)]

    rows = []
    for key, value in meta.items():
        text = "{\n" + ",\n".join(f"    {dump(name)}: {text_of(one)}" for name, one in value.items()) + "\n  }" if (
            isinstance(value, dict) and value) else dump(value)
        rows.append(f"  {dump(key)}: {text}")
    return "{\n" + ",\n".join(rows) + "\n}\n"


def attempt_folder(number: int) -> str:
    """Name of an attempt's folder below the run folder."""
    return f"attempts/{number:04d}"


def _is_there(path: Path) -> bool:
    """Whether a path exists; raises OSError where nobody can say."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _owner(path: Path) -> str:
    """A folder's owner, as far as its parents show it."""
    try:
        return name_of(path.stat().st_uid)
    except OSError:
        return "somebody else"
