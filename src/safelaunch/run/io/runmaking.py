"""Making a run's folder, once, at submit. Its layout is a public contract (docs/run-folder.md)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import json
import os
from collections.abc import Callable, Iterator, Mapping
from json.encoder import encode_basestring, encode_basestring_ascii
from pathlib import Path
from typing import Any

from safelaunch.base.io import durable, modes, openfolder, sharedfile
from safelaunch.base.io.owners import name_of
from safelaunch.errors import RunFolderError
from safelaunch.run.io.runfolder import FOLDERS, FOLLOWED, OWN_FOLDER, Run, closed_to
from safelaunch.run.plan import Plan

DRAFT = ".run.json"
BEGUN = ".begun"   # who makes the folder, until run.json is there
_BEFORE_RUN_JSON = ("job.sbatch", "submit.env", DRAFT)


class Mark(contextlib.AbstractContextManager["Mark"]):
    """The file that says who makes a run's folder: one for all runs of a submission, with a name in each folder. One
    for each would be deleted with it, and ext4 looks at every inode that was deleted in the last 5 s before it makes
    a file.
    """

    def __init__(self) -> None:
        self._draft: Path | None = None

    def put(self, run_dir: Path, made: list[Path], is_new: bool) -> None:
        """Note that this process makes the run, and delete what one that was killed meanwhile has left. Raises
        RunFolderError where that one may live, or has made the run, and FileExistsError where another submission was
        faster.
        """
        mark, text = run_dir / BEGUN, f"{os.uname().nodename} {os.getpid()}".encode()
        with contextlib.ExitStack() as held:
            is_taken = not is_new and _take_over(mark, held)
            if is_taken:
                following = run_dir / f"{BEGUN}.{os.getpid()}.next"
                following.unlink(missing_ok=True)   # of a dead process with this pid
                self._name(following, text, run_dir, made)
                following.replace(mark)
            else:
                self._name(mark, text, run_dir, made)
        made.append(mark)
        if not is_new:
            _refuse_run(run_dir)   # made since the last look
        if is_taken:
            _delete_begun(run_dir)

    def _name(self, path: Path, text: bytes, run_dir: Path, made: list[Path]) -> None:
        if self._draft is not None and _is_named(self._draft, path, text):
            return
        self.close()
        draft = _mark_draft(run_dir)
        draft.unlink(missing_ok=True)   # of a dead process with this pid
        _write(draft, text, made, sync=bool)   # a power cut leaves no mark, or an empty one
        self._draft = draft
        if not _is_named(draft, path, text):
            raise OSError(errno.EPERM, "this filesystem has no second names for files", str(path))

    def close(self) -> None:
        """Delete the file's own name."""
        if self._draft is not None:
            self._draft.unlink(missing_ok=True)

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):   # a draft harms nobody
            self.close()


class NewRun:
    """A run that other processes see in its folder, and that is not durable yet."""

    def __init__(self, run: Run, made: list[Path], sync: durable.SyncLater) -> None:
        self.run, self._made, self.sync = run, made, sync

    def keep(self) -> Run:
        """Make it durable, with what else waits in `sync`. Raises RunFolderError; nothing is left then."""
        with _nothing_half_made(self.run.dir, self._made), self.sync:
            self.sync.now()
            (self.run.dir / BEGUN).unlink()
        return self.run


def create(
    run_dir: Path, meta: Mapping[str, Any], plan: Plan, script: str, env: Mapping[str, str], *,
    is_followed: bool = False, mark: Mark | None = None,
) -> NewRun:
    """Make the run folder with all that submit knows. `is_followed`: another run will wait for this one's end; `mark`:
    that of a submission of several runs. Raises RunFolderError; nothing half-made is left.
    """
    made: list[Path] = []
    with contextlib.ExitStack() as closing, _nothing_half_made(run_dir, made):
        own, sync = mark or closing.enter_context(Mark()), closing.enter_context(durable.SyncLater())
        _refuse_run(run_dir)
        is_new = _make_run_dir(run_dir, made)
        with _owned(run_dir):   # before anything in it is changed
            pass
        parents = [path for path in made if path != run_dir]
        own.put(run_dir, made, is_new)
        _make_folders(run_dir, plan, parents, made)   # under the mark: who is refused deletes none of another's run
        variables = "\0".join(f"{key}={value}" for key, value in sorted(env.items()))
        _write(run_dir / "job.sbatch", script.encode(), made, modes.PROGRAM, sync=sync.sync)
        _write(run_dir / "submit.env", variables.encode(errors="surrogateescape"), made, sync=sync.sync)
        if is_followed:
            _write(run_dir / "control" / FOLLOWED, b"", made, for_group=True, sync=sync.sync)
        _write(run_dir / DRAFT, _render_meta(meta), made, for_group=True, sync=sync.sync)
        made.append(_publish(run_dir / DRAFT, run_dir / "run.json"))   # one that is killed leaves no half
        if mark is None:
            own.close()
        closing.pop_all()
    return NewRun(Run(run_dir, meta, plan), made, sync)


@contextlib.contextmanager
def _nothing_half_made(run_dir: Path, made: list[Path]) -> Iterator[None]:
    """Delete what is made where it fails; raises RunFolderError then."""
    try:
        yield
    except RunFolderError:
        _unmake(made)
        raise
    except OSError as error:
        _unmake(made)
        closed = isinstance(error, (PermissionError, sharedfile.OddFile))
        raise RunFolderError(f"cannot make the run folder {run_dir}: {error.strerror or error}"
                             f"{f' ({error.filename})' if error.filename else ''}; nothing was submitted",
                             hint=OWN_FOLDER if closed else "choose another run_dir, or free some space") from error


def keep_git(run_dir: Path, facts: Mapping[str, str]) -> None:
    """Write git.json, for the owner alone: a diff can hold anything of the working tree. Raises OSError."""
    _write(run_dir / "git.json", json.dumps(facts).encode() + b"\n", [])


def unmake(run_dir: Path) -> None:
    """Delete what `create`, and a submission that came to nothing, have made. Everything else in the folder stays."""
    made = [*run_dir.glob("journal/*.jsonl"), *run_dir.glob("claims/*"), run_dir / "job.out", _mark_draft(run_dir),
            *(run_dir / name for name in ("run.json", *_BEFORE_RUN_JSON, BEGUN, f"control/{FOLLOWED}")),
            *(run_dir / name for name in (*FOLDERS, "control"))]
    _unmake([run_dir, *reversed(made)])


@contextlib.contextmanager
def _owned(run_dir: Path) -> Iterator[int]:
    """The run's folder, as a dir_fd, once it is known to be this user's. Raises RunFolderError where it is another's,
    and OddFile for another's link to it.
    """
    with openfolder.named(run_dir) as folder:
        owner = os.fstat(folder).st_uid
        if owner != os.geteuid():
            raise RunFolderError(f"{run_dir} belongs to {name_of(owner)}; nothing was submitted", hint=OWN_FOLDER)
        yield folder


def _delete_begun(run_dir: Path) -> None:
    """Delete what a submission that was killed has left."""
    for name in _BEFORE_RUN_JSON:
        (run_dir / name).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError), openfolder.inside(run_dir, "control") as control:
        os.unlink(FOLLOWED, dir_fd=control)


def _mark_draft(run_dir: Path) -> Path:
    return run_dir / f"{BEGUN}.{os.getpid()}"


def _take_over(mark: Path, held: contextlib.ExitStack) -> bool:
    """Whether there is a dead submission's mark. Nobody else takes that over while `held` is open. Raises
    RunFolderError where its maker may live.
    """
    try:   # for writing: NFS locks no other
        old = os.open(mark, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    held.callback(os.close, old)
    with contextlib.suppress(OSError):   # not every filesystem has locks
        fcntl.flock(old, fcntl.LOCK_EX)
    who, _, pid = os.read(old, 4096).decode(errors="replace").partition(" ")
    is_here = who == os.uname().nodename and pid.isdecimal()
    may_live = who != "" and (not is_here or Path(f"/proc/{pid}").exists())
    is_another = not os.path.samestat(os.fstat(old), mark.stat())   # last: it may have made the run, and ended
    if is_another or may_live:
        maker = "another process" if is_another else f"process {pid} of {who}"
        raise RunFolderError(f"{mark.parent} is being made by {maker}", hint=f"if that one has ended: rm {mark}")
    return True


def _is_named(draft: Path, mark: Path, text: bytes) -> bool:
    """Whether the mark is there now, as another name of the draft; False = this draft can have none there. Raises
    FileExistsError where the mark is another's.
    """
    try:
        os.link(draft, mark)
    except FileExistsError:
        if not sharedfile.holds(mark, text):   # over NFS the answer to a link can be lost: link(2)
            raise
    except OSError:   # it lies on another filesystem, or has gone with its folder
        return False
    return True


def _publish(draft: Path, path: Path) -> Path:
    """Give a file that is whole its name; raises FileExistsError where another submission was faster."""
    if not durable.link(draft, path, lambda: sharedfile.holds(path, sharedfile.read(draft))):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    draft.unlink()
    return path


def _make_run_dir(run_dir: Path, made: list[Path]) -> bool:
    """Whether the run's folder was not there before."""
    try:
        return _make(run_dir, made)
    except FileNotFoundError:
        for path in reversed(run_dir.parents):
            if not path.exists():   # or the submission of another point of a sweep was faster
                _make(path, made)
        return _make(run_dir, made)


def _make_folders(run_dir: Path, plan: Plan, parents: list[Path], made: list[Path]) -> None:
    """`parents`: those of the run's folder that were not there before."""
    with _owned(run_dir) as run:
        modes.set_mode(".", modes.FOLDER, folder=run)   # an existing one may be open, or pass on a foreign group
        for name in (*FOLDERS, "control"):
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, modes.FOLDER, dir_fd=run)
            with openfolder.inside(run_dir, name):   # raises for a link, and for another's
                made.append(run_dir / name)
        if plan.kill_switch.group is not None:
            _share(run_dir, run, parents, plan.kill_switch.group)


def _make(folder: Path, made: list[Path]) -> bool:
    """Whether the folder was not there before."""
    try:
        folder.mkdir(modes.FOLDER)
    except FileExistsError:
        return False
    made.append(folder)
    return True


def _unmake(made: list[Path]) -> None:
    for path in reversed(made):
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def _share(run_dir: Path, run: int, made_parents: list[Path], group: str) -> None:
    """Open the control folder to a group for writing and the rest for reading; make sure that its members can reach it.

    The setgid bit passes the group on to all that is made later, by the job as well. The sticky bit keeps a member from
    deleting another's request: inode(7).
    """
    try:
        gid = grp.getgrnam(group).gr_gid
    except KeyError:
        raise RunFolderError(f"kill_switch.group: there is no group {group!r} on this machine") from None
    try:
        for path in made_parents:
            modes.set_mode(path, 0o750, gid)
        for name in (".", *FOLDERS):
            modes.set_mode(name, modes.GROUP_FOLDER, gid, folder=run)
        modes.set_mode("control", modes.GROUP_CONTROL, gid, folder=run)
    except PermissionError:
        raise RunFolderError(f"kill_switch.group: you are not in the group {group!r}",
                             hint="name a group that `id` shows, or leave kill_switch.group out") from None
    if closed := closed_to(gid, run_dir.parents):
        raise RunFolderError(
            f"members of {group!r} cannot reach the kill switch: {closed[-1]} does not let them pass",
            hint=f"type: chgrp {group} {closed[-1]} && chmod g+x {closed[-1]}   "
                 f"(or: setfacl -m g:{group}:x {closed[-1]})")


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
        return _lines(meta, json.JSONEncoder(ensure_ascii=False).encode, encode_basestring).encode()
    except UnicodeEncodeError:
        return _lines(meta, json.dumps, encode_basestring_ascii).encode()


def _lines(meta: Mapping[str, Any], dump: Callable[[Any], str], quote: Callable[[str], str]) -> str:
    texts: dict[int, str] = {}   # most values are there many times: an origin, None

    def text_of(value: Any) -> str:
        text = texts.get(id(value))
        if text is None:
            text = texts[id(value)] = dump(value)
        return text

    rows = []
    for key, value in meta.items():
        text = "{\n" + ",\n".join(f"    {quote(name)}: {text_of(one)}" for name, one in value.items()) + "\n  }" if (
            isinstance(value, dict) and value) else dump(value)
        rows.append(f"  {quote(key)}: {text}")
    return "{\n" + ",\n".join(rows) + "\n}\n"


def _refuse_run(run_dir: Path) -> None:
    """Raises RunFolderError where there is a run, and OSError where nobody can say."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        (run_dir / "run.json").stat()
        raise RunFolderError(f"{run_dir} already holds a run", hint="choose another name or run_dir, or remove it")
