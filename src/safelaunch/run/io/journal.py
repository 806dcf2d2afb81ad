"""Writing the journal and the claims; reading all writers' files as one.

Each writer has a file of its own, `journal/<gen>-<host>-<pid>.jsonl`. A claim is a file `claims/<n>` that only one
process can publish. Its number fences the act that it announces.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from safelaunch.base.io import durable, modes, sharedfile
from safelaunch.base.model import Event
from safelaunch.run import journal as text
from safelaunch.run.journal import Journal

LEAD = "lead job "   # a claim to lead the run begins so, and ends with the job's id; job.sbatch reads it, too
LAUNCH = "launch "   # a claim to launch an attempt begins so, and ends with its number
CLAIM_DIGITS, MOST_CLAIMS = 9, 1000   # of a name in claims/; of a look
MAX_JOURNAL_BYTES = 256 << 20   # of one writer; a longer file is not ours
# Of all files together, for a person who waits and does not know who wrote them: 2 s and 150 MB
MOST_SHOWN_BYTES, MOST_SHOWN_PARTS = 32 << 20, 600_000
BLOCK_BYTES = 1 << 16
# Of a step a minute: the first eight hours of an attempt, in which it makes lost steps again, and then every 16th.
COURSE_FIRST, COURSE_EVERY = 480, 16
_HEAD, _STEP = b'{"v":1,', b',"event":"progress",'


class JournalFolder(Protocol):
    """What writing needs of the run folder: run.io.shared.SharedFolder in a job, `Direct` on a login node."""

    def append(self, name: str, data: bytes, deadline_s: float = 2.0) -> bool:
        """Append durably; False = kept elsewhere until the folder answers."""

    def publish(self, name: str, data: bytes, deadline_s: float = 2.0) -> bool | None:
        """Publish exclusively: True = won, False = lost, None = unknown."""


class Direct:
    """The run folder, touched without a child: for commands that a person waits for. `sync`: as a new run's files."""

    def __init__(self, root: Path, sync: durable.Sync = os.fsync) -> None:
        self.root, self._sync = root, sync

    def append(self, name: str, data: bytes, deadline_s: float = 2.0) -> bool:
        """Append and fsync; raises OSError. After a torn line (a full disk, a dead writer) it begins a new one."""
        path = self.root / name
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, modes.FILE)
        try:
            size = os.fstat(descriptor).st_size
            if not size:
                modes.open_to_group(descriptor, path.parent)
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                data = b"\n" + data
            durable.write(descriptor, data, self._sync)
        finally:
            os.close(descriptor)
        return True

    def publish(self, name: str, data: bytes, deadline_s: float = 2.0) -> bool | None:
        """Publish exclusively; a name that is taken and cannot be read is another's. Raises OSError."""
        return durable.publish(self.root / name, data, _holds, self._sync)


def _holds(path: Path, data: bytes) -> bool:
    """Whether it is ours after all: a client may cache the number of links for seconds (nfs(5), acregmin)."""
    with contextlib.suppress(OSError):
        return sharedfile.holds(path, data)
    return False


class Writer:
    """One writer's end of the journal. `seq` marks a line that is delivered twice."""

    def __init__(self, folder: JournalFolder, gen: int, host: str, clock: Callable[[], float] = time.time,
                 pid: int | None = None) -> None:
        self._folder, self._clock = folder, clock
        self.gen, self.host, self.seq = gen, host, 0
        self.name = f"journal/{gen:06d}-{host}-{os.getpid() if pid is None else pid}.jsonl"

    def event(self, event: str, **data: Any) -> Event:
        """An event at the present time, numbered; write it with `write`."""
        self.seq += 1
        return Event(self._clock(), self.gen, self.seq, self.host, event, data)

    def write(self, *events: Event, deadline_s: float = 2.0) -> bool:
        """Append the events with one fsync; True = durable in the run folder."""
        return self._folder.append(self.name, b"".join(map(text.render, events)), deadline_s)


def read(
    run_dir: Path, steps_kept: int | None = None, with_course: bool = False, partly: bool = False
) -> Journal:
    """The run's journal, merged. It blocks where the folder does: call it in a child or for a person.

    `steps_kept`: of consecutive progress lines only the last so many are parsed. They are most of a long run's journal,
    and the state keeps only the last one. `with_course`: also the first COURSE_FIRST of them, and each COURSE_EVERY-th.
    `partly`: a file that this user may not read is only a problem, for people who look at the rest; of a run of another
    user also what is too large.
    """
    is_bounded = partly and not _is_own(run_dir)
    files, odd = _read_files(run_dir, partly, MOST_SHOWN_BYTES if is_bounded else None)
    if steps_kept is not None:
        for name, content in files.items():
            files[name] = _thin(content, steps_kept, with_course)
    merged = _merge(files, MOST_SHOWN_PARTS if is_bounded else None)
    return merged._replace(problems=(*merged.problems, *(f"journal/{name}: {why}" for name, why in odd)))


def mentions(run_dir: Path, words: bytes) -> bool:
    """Whether these bytes stand anywhere in the journal: much cheaper than `read`. Raises OSError."""
    return any(words in content for content in _read_files(run_dir)[0].values())


def _read_files(
    run_dir: Path, partly: bool = False, most_bytes: int | None = None
) -> tuple[dict[str, bytes], list[tuple[str, str]]]:
    """Each writer's lines, at most so many bytes of all together, and the names of files that only look like a
    writer's, with the reason.

    Raises OSError: a file that cannot be read is not an empty one; `partly`: where it is closed it is odd.
    """
    files: dict[str, bytes] = {}
    odd: list[tuple[str, str]] = []
    left = most_bytes
    for path in sorted((run_dir / "journal").glob("*.jsonl"), key=None if left is None else _size):   # a huge one last
        try:
            files[path.name] = sharedfile.read_start(path, MAX_JOURNAL_BYTES if left is None else left, left is None)
            if left is not None and not (left := left - len(files[path.name])) and (
                    _size(path)[0] > len(files[path.name])):
                odd.append((path.name, f"only the first {len(files[path.name]) >> 20} MiB were read"))
        except sharedfile.OddFile:
            odd.append((path.name, "no regular file"))
        except PermissionError as error:
            if not partly:
                raise
            odd.append((path.name, f"cannot be read: {error.strerror}"))
    return files, odd


def _is_own(run_dir: Path) -> bool:
    """Whether the run is this user's; False also where the folder has gone."""
    try:
        return run_dir.stat().st_uid == os.geteuid()
    except OSError:
        return False


def _size(path: Path) -> tuple[int, Path]:
    """To sort by; a file that is gone has none."""
    try:
        return path.lstat().st_size, path
    except OSError:
        return 0, path


def _thin(content: bytes, steps_kept: int, with_course: bool = False) -> bytes:
    kept = bytearray()   # a list of 30 million short lines takes gigabytes
    steps: list[bytes] = []
    start = 0
    while start < len(content):
        end = content.find(b"\n", start + BLOCK_BYTES) + 1 or len(content)
        block, start = content[start:end], end
        if _is_steps_only(block):   # ten times as fast as line by line
            steps += block.split(b"\n")[:-1] if with_course else (
                block.rsplit(b"\n", steps_kept + 1)[-steps_kept - 1:-1])
            continue
        for is_step, lines in _parts(block):
            if is_step:
                steps.append(lines)
            elif lines.strip():
                kept += _sample(steps, steps_kept, with_course) + lines + b"\n"
                steps.clear()
    kept += _sample(steps, steps_kept, with_course)
    return bytes(kept if content.endswith(b"\n") else kept[:-1])


def _parts(block: bytes) -> Iterator[tuple[bool, bytes]]:
    """Each line of progress, and what is between two of them, as (whether it is one, text without its last line end).
    """
    at = 0
    while (found := block.find(_STEP, at)) >= 0:
        start = block.rfind(b"\n", at, found) + 1 or at
        end = block.find(b"\n", found) % (len(block) + 1)
        is_step = block.startswith(_HEAD, start) and block.endswith(b"}", start, end)
        if is_step and at < start:
            yield False, block[at:start - 1]
        yield is_step, block[start if is_step else at:end]
        at = end + 1
    if at < len(block):
        yield False, block[at:].removesuffix(b"\n")


def _sample(steps: list[bytes], last: int, with_course: bool) -> bytes:
    """The last lines of steps; with the course of them those before, thinned."""
    before = steps[:-last] if with_course else []
    some = (*before[:COURSE_FIRST], *before[COURSE_FIRST::COURSE_EVERY], *steps[-last:])
    return b"".join(line + b"\n" for line in some)


def _is_steps_only(block: bytes) -> bool:
    """Whether each line is one of progress; these words stand in no value, where JSON has a backslash at a quote."""
    count = block.count(b"\n")
    return (block.startswith(_HEAD) and block.endswith(b"}\n") and block.count(b"}\n" + _HEAD) == count - 1
            and block.count(_STEP) == count)


def read_raw(run_dir: Path) -> dict[str, str]:
    """The writers' files as text that survives JSON (latin-1), for an answer of a child."""
    return {name: content.decode("latin-1") for name, content in _read_files(run_dir)[0].items()}


def merge_raw(files: dict[str, str]) -> Journal:
    """The journal from `read_raw`."""
    return _merge({name: content.encode("latin-1") for name, content in files.items()})


def _merge(files: dict[str, bytes], most_parts: int | None = None) -> Journal:
    """Without the collector: it would go through all events again and again, a third of the time, and none is garbage.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        return text.merge(files, most_parts)
    finally:
        if was_on:
            gc.enable()


def _claims(run_dir: Path) -> list[int]:
    """The claims' numbers in order, as the folder lists them: whoever makes a name there makes no range of it."""
    with contextlib.suppress(FileNotFoundError):
        names = (path.name for path in (run_dir / "claims").iterdir())
        return sorted(int(name) for name in names if len(name) <= CLAIM_DIGITS and name.isdecimal())
    return []


def last_claim(run_dir: Path) -> int:
    """The highest claim number so far; 0 = none."""
    return max(_claims(run_dir), default=0)


def claims_after(run_dir: Path, number: int) -> list[dict[str, Any]]:
    """The newest MOST_CLAIMS claims after a number, in order; torn ones are left out."""
    later = [one for one in _claims(run_dir) if one > number]
    return [claim for one in later[-MOST_CLAIMS:] if (claim := read_claim(run_dir, one)) is not None]


def newest_lead(run_dir: Path) -> tuple[str, int] | None:
    """The job whose supervisor claimed the lead last, and its generation, the claim's number; None = not known."""
    for number in reversed(_claims(run_dir)):
        claim = read_claim(run_dir, number)
        if claim is not None and str(claim.get("action", "")).startswith(LEAD):
            return str(claim["action"]).removeprefix(LEAD), number
    return None


def last_launch(run_dir: Path) -> dict[str, Any] | None:
    """The newest claim to launch an attempt, with its `claim` number, its `attempt`, and the `job` that led then."""
    found: dict[str, Any] | None = None
    for number in reversed(_claims(run_dir)):
        claim = read_claim(run_dir, number) or {}
        action = str(claim.get("action", ""))
        if found is None and action.startswith(LAUNCH) and action.removeprefix(LAUNCH).isdecimal():
            found = {**claim, "claim": number, "attempt": int(action.removeprefix(LAUNCH)), "job": ""}
        elif found is not None and action.startswith(LEAD) and claim.get("gen") == found.get("gen"):
            return {**found, "job": action.removeprefix(LEAD)}
    return found


def read_claim(run_dir: Path, number: int) -> dict[str, Any] | None:
    """A claim's content; None when it is missing or torn."""
    with contextlib.suppress(OSError, ValueError):
        claim = sharedfile.read_json(run_dir / "claims" / str(number), sharedfile.CLAIM_BYTES)
        return claim if isinstance(claim, dict) else None
    return None


def render_claim(gen: int, host: str, action: str, t: float, pid: int | None = None) -> bytes:
    """A claim file's content."""
    owner = {"gen": gen, "host": host, "pid": os.getpid() if pid is None else pid}
    return (json.dumps({"v": 1, "t": round(t, 3), **owner, "action": action}) + "\n").encode()
