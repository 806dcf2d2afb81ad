"""The user's list of runs, so that a run can be named from any folder: JSON lines in the state folder of the home.

It only helps to find runs: the run folder is the truth. A list that cannot be written or read does not affect a
submission, and a run is always found by its path. Each line is appended in one write; only a reader shortens the file.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safelaunch.base.io import sharedfile
from safelaunch.run.io import clustername, journal, runpath

VERSION = 1
COMPACT_BYTES = 2 << 20   # twice the size of KEPT_RUNS with their last lines
MOST_BYTES = 8 << 20       # read, from the end; a reader shortens it long before
KEPT_RUNS = 1000
JOBS_OF_RUNS = 200         # how many runs' journals are searched for a job id, newest first
LOCK_S = 1.0
RESUME_DEPTH = 3           # so many folders deep checkpoints are looked for: checkpoints/filesets.py
_START, _RESUME = b'{"v":', b'"resume":'


class RegisteredRun(NamedTuple):
    """One registered run; `job` is its first job."""

    dir: Path
    name: str
    run_id: str
    job: str
    t: float
    cluster: str = ""   # Slurm's ClusterName; "" = a local run, or not known
    # Its line of `status`, once a reader has seen its end: its folder need not be read any more.
    brief: Mapping[str, Any] | None = None
    sweep: Mapping[str, Any] | None = None   # id, name and point, of a run of a sweep
    resume: str = ""    # the real path of its resume.dir; "" = none, or it is said to be shared

    @property
    def ended_t(self) -> float | None:
        """When it ended, as far as known; None = it goes on, or nobody has checked."""
        ended_t = self.brief.get("ended_t") if self.brief is not None else None
        return ended_t if isinstance(ended_t, float) else None


def new_id() -> str:
    """A new run's or sweep's id: eight hexadecimal digits, the first a letter, so that nobody takes it for a job's id.
    """
    while (new := os.urandom(4).hex())[0].isdecimal():   # as secrets does, whose import (OpenSSL) takes 5 ms
        pass
    return new


def file() -> Path:
    """Where the list is: in $XDG_STATE_HOME (its standard: an absolute path) or ~/.local/state. Raises OSError."""
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        folder = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    except RuntimeError as error:   # no HOME, and no such user on this node
        raise OSError(errno.ENOENT, str(error)) from error
    return folder / "safelaunch" / "runs.jsonl"


def others_file() -> Path:
    """Where the other users' runs that were asked for are listed, in the same form."""
    return file().with_name("others.jsonl")


def register(
    run_dir: Path, name: str, run_id: str, job: str, cluster: str = "", sweep: Mapping[str, Any] | None = None,
    resume: str | None = None,
) -> bool:
    """Whether the run is on the list now; a full or read-only home must not fail an accepted submission."""
    return _add(file, RegisteredRun(run_dir.absolute(), name, run_id, job, round(time.time(), 3), cluster,
                                    sweep=sweep, resume=resume or ""))


def sweep_of(known: Sequence[RegisteredRun], text: str) -> list[RegisteredRun]:
    """Of the runs, newest first, those of the sweep that `text` means by name or id, in the order of its points; [] =
    it means none. Of a run and sweeps of that name the newest is meant.
    """
    meant = next((entry for entry in known if text in (entry.name, entry.run_id)
                  or (entry.sweep is not None and text in (entry.sweep["name"], entry.sweep["id"]))), None)
    if meant is None or meant.sweep is None or text in (meant.name, meant.run_id):
        return []
    found = [entry for entry in known if entry.sweep is not None and entry.sweep["id"] == meant.sweep["id"]]
    return sorted(found, key=lambda entry: entry.sweep["point"] if entry.sweep is not None else 0)


def remember(run_dir: Path, name: str, run_id: str, job: str, cluster: str = "") -> bool:
    """Whether another user's run, which Slurm knew when it was asked for, is on the list of those."""
    entry = RegisteredRun(run_dir, name, run_id, job, round(time.time(), 3), cluster)
    known = listed(others_file)
    return any(one.dir == run_dir and one.job == job for one in known) or _add(others_file, entry)


def note_ends(entries: Iterable[RegisteredRun]) -> None:
    """Write down that runs have ended; if that fails, the next reader checks them again."""
    lines = b"".join(map(_line, entries))
    if lines:
        with contextlib.suppress(OSError):
            _append(file(), lines)


def _add(where: Callable[[], Path], entry: RegisteredRun) -> bool:
    line = _line(entry)
    try:
        path = where()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Twice at most: a reader that shortened the list has put a new file under the name.
        return _append(path, line) or _append(path, line)
    except OSError:
        return False


def entries() -> Iterator[RegisteredRun]:
    """The runs on the list, newest first, one entry a folder; those whose folder is gone are left out."""
    return (entry for entry in listed() if runpath.is_run_folder(entry.dir))


def listed(where: Callable[[], Path] = file) -> list[RegisteredRun]:
    """All entries, newest first, the last one of each folder. It touches no run folder: any of them may hang."""
    return parse(raw(where))


def with_resume(folder: str) -> list[RegisteredRun]:
    """The runs that write their checkpoints to this folder, or to one so far above or below it that one of the two runs
    would look into the other's; newest first. Only their lines are parsed.
    """
    near = (folder, *map(str, tuple(Path(folder).parents)[:RESUME_DEPTH]))
    marks = [_RESUME + json.dumps(one).encode() for one in near]
    marks.append(_RESUME + json.dumps(f"{folder}/").encode()[:-1])
    try:
        content = _read(file())
    except OSError:
        return []
    marks = [mark for mark in marks if mark in content]
    lines = content.splitlines() if marks else []
    dirs = {b'"dir":' + json.dumps(str(entry.dir)).encode() for entry in _parse_all(
        b"\n".join(line for line in lines if any(mark in line for mark in marks)))}
    # A later line of the same folder may say that the run has ended, or be another run's.
    known = _parse_all(b"\n".join(line for line in lines if any(one in line for one in dirs)))
    return [entry for entry in known if entry.resume in near or (
        entry.resume.startswith(f"{folder}/") and entry.resume.count("/", len(folder)) <= RESUME_DEPTH)]


def raw(where: Callable[[], Path] = file) -> str:
    """The list as text that survives JSON (latin-1), for a child's answer: a home may be frozen, too."""
    try:
        path = where()
        content = _read(path)
    except OSError:
        return ""
    if len(content) > COMPACT_BYTES:
        _compact(path)
    return content.decode("latin-1")


def _read(path: Path) -> bytes:
    """The end of a list, whoever may write its folder. Raises OSError."""
    with os.fdopen(sharedfile.open_log(path), "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - MOST_BYTES))
        return file.read(MOST_BYTES)


def parse(content: str) -> list[RegisteredRun]:
    """The entries from `raw`."""
    return _parse_all(content.encode("latin-1"))


def find(text: str) -> list[Path]:
    """Folders of the runs that `text` may mean, newest first: by name or run id, job id, folder, else by a prefix.

    More than one: it is ambiguous, and the caller says so. Runs of one name in one folder (RUN, RUN-2, … as submit
    makes them of one train.yaml) are a series, and its name means the newest. One's own come first.
    """
    return _find_in(listed(), text) or _find_in(listed(others_file), text)


def _find_in(known: list[RegisteredRun], text: str) -> list[Path]:
    meant = _series(entry for entry in known if text in (entry.name, entry.run_id))
    if not meant and text.isdigit():
        newest = known[:JOBS_OF_RUNS]
        likely = [entry for entry in newest if not entry.job.isdigit() or int(entry.job) <= int(text)]
        # Slurm counts jobs up: a run that began with a later one has it only where it began to count again.
        meant = _series(_of_job(likely, text) or _of_job((one for one in newest if one not in likely), text))
    return (meant or _series(entry for entry in known if entry.dir.name == text)
            or _series(entry for entry in known if entry.name.startswith(text) or entry.run_id.startswith(text)))


def _of_job(known: Iterable[RegisteredRun], job: str) -> list[RegisteredRun]:
    """The runs that a job id may mean: this cluster's, else all other clusters', which is ambiguous.

    Of each cluster only the newest: job ids start again when a cluster is set up again.
    """
    known, newest = list(known), dict[str, RegisteredRun]()
    # Slurm is asked (20 ms) only where its answer decides.
    cluster = clustername.here() if len({entry.cluster for entry in known}) > 1 else ""
    for entry in known:
        if entry.cluster not in newest and (entry.job == job or has_job(entry.dir, job)):
            newest[entry.cluster] = entry
            if cluster and entry.cluster == cluster:
                return [entry]
    return list(newest.values())


def has_job(run_dir: Path, job: str) -> bool:
    """Whether the run's journal has a job of that id; False also for a run that we may not read."""
    from safelaunch.run.fold.folding import fold  # not what submit needs

    mark = f'"job":"{job}"'.encode()
    try:
        return journal.mentions(run_dir, mark) and any(
            known.id == job for known in fold(journal.read(run_dir, steps_kept=1).events).jobs)
    except OSError:
        return False


def _series(found: Iterable[RegisteredRun]) -> list[Path]:
    """The newest existing folder of each series."""
    newest: dict[tuple[str, Path], Path] = {}
    for entry in found:
        if (entry.name, entry.dir.parent) not in newest and _is_there(entry.dir):
            newest[(entry.name, entry.dir.parent)] = entry.dir
    return list(newest.values())


def _is_there(run_dir: Path) -> bool:
    """Whether a run is in the folder; one that is closed to us counts."""
    try:
        return runpath.is_run_folder(run_dir)
    except PermissionError:
        return True
    except OSError:
        return False


def _append(path: Path, line: bytes) -> bool:
    if path.is_symlink() and path.lstat().st_uid == os.geteuid():
        path = path.resolve()   # another's could lead to any file of ours
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK,
                         0o600)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise sharedfile.OddFile(errno.EINVAL, "is no regular file", str(path))
        os.write(descriptor, line)
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(descriptor), path.stat())
        return False
    finally:
        os.close(descriptor)


def _parse_all(content: bytes) -> list[RegisteredRun]:
    newest = {str(row.get("dir")): row for line in content.splitlines() if (row := _parse(line)) is not None}
    # Of two of one millisecond, the one that was listed later is the newer.
    return sorted(filter(None, map(_entry, reversed(newest.values()))), key=lambda entry: entry.t, reverse=True)


def _parse(line: bytes) -> dict[str, Any] | None:
    """The object of a line; None for one that is torn or of another version.

    A torn write leaves no newline, so the next line starts in the middle of that one.
    """
    start = line.rfind(_START)
    if start < 0:
        return None
    try:
        row: Any = json.loads(line[start:])
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and row.get("v") == VERSION else None


def _entry(raw: dict[str, Any]) -> RegisteredRun | None:
    """The entry of a line; None for a malformed one."""
    try:
        return RegisteredRun(Path(str(raw["dir"])), str(raw["name"]), str(raw["run_id"]), str(raw["job"]),
                             float(raw["t"]),
                             str(raw.get("cluster") or ""),
                             brief if isinstance(brief := raw.get("brief"), dict) else None,
                             _sweep(raw.get("sweep")), str(raw.get("resume") or ""))
    except (ValueError, KeyError, TypeError):
        return None


def _sweep(raw: object) -> dict[str, Any] | None:
    """id, name and point; None where these are not all there."""
    if not isinstance(raw, dict) or not isinstance(point := raw.get("point"), int):
        return None
    return {"id": str(raw.get("id")), "name": str(raw.get("name")), "point": point}


def _compact(path: Path) -> None:
    """Write the newest runs to a new list, under a lock: two readers at once would lose each other's lines."""
    import filelock  # only here: submit imports this module and has no time for it

    with contextlib.suppress(OSError, filelock.Timeout), filelock.FileLock(f"{path}.lock", timeout=LOCK_S):
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        draft.unlink(missing_ok=True)
        made = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(made, "wb") as new, os.fdopen(sharedfile.open_log(path), "rb") as old:
            old.seek(max(0, os.fstat(old.fileno()).st_size - MOST_BYTES))
            content = old.read(MOST_BYTES)
            if len(content) <= COMPACT_BYTES:
                draft.unlink()
                return   # another reader has done it
            new.writelines(map(_line, reversed(_parse_all(content)[:KEPT_RUNS])))
            new.flush()
            os.fsync(new.fileno())
            draft.replace(path)
            new.write(old.read(MOST_BYTES))   # lines appended since; `register` repeats what comes later


def _line(entry: RegisteredRun) -> bytes:
    ended = {"brief": entry.brief} if entry.brief is not None else {}
    row = {"v": VERSION, "t": entry.t, "name": entry.name, "run_id": entry.run_id, "job": entry.job,
           "dir": str(entry.dir), "cluster": entry.cluster, **ended,
           **({"sweep": entry.sweep} if entry.sweep is not None else {}),
           **({"resume": entry.resume} if entry.resume else {})}
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"
