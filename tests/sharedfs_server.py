"""A FUSE filesystem that shows what NFS clients show: `python -m tests.sharedfs_server BEHIND MOUNT CONTROL`.

One mount, many clients: who asks is told by the UTS namespace of the calling process, as machines of a sandbox differ
by theirs. Each client has caches of its own over the folder `BEHIND`, which stands for the server. The file CONTROL is
JSON (tests/sharedfs.py, `Faults`) and is read again at each call once it has changed.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import json
import os
import stat
import sys
import threading
import time
from typing import Any

import mfusepy  # type: ignore[import-untyped,unused-ignore]

NOBODY = 65534
GROUPS_SENT = 16      # of AUTH_SYS: rfc5531, appendix A
KNOWN_S = 0.5         # for which a process is believed to be of the client that it was of
STAT_FIELDS = ("st_mode", "st_ino", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks", "st_blksize")


class Client:
    """What one client remembers: names of directories with the files they stood for then, and attributes."""

    def __init__(self) -> None:
        self.names: dict[str, dict[str, int]] = {}    # directory → name → a descriptor that keeps the old file
        self.until_s: dict[str, float] = {}
        self.attributes: dict[str, tuple[float, dict[str, int]]] = {}

    def forget(self, folder: str) -> None:
        """Ask the server next time: this client has changed the directory itself."""
        for descriptor in self.names.pop(folder, {}).values():
            os.close(descriptor)
        self.until_s.pop(folder, None)


class Server(mfusepy.Operations):   # type: ignore[misc,unused-ignore]
    """The file operations of all clients."""

    use_ns = True

    def __init__(self, behind: str, control: str) -> None:
        self.behind, self.control = behind, control
        self.clients: dict[int, Client] = {}
        self.faults: dict[str, Any] = {}
        self._sign: tuple[int, int] = (0, 0)
        self._lock = threading.RLock()
        self._synced: dict[int, int] = {}    # descriptor → bytes that a failed close or fsync leaves
        self._openers: dict[int, int] = {}   # descriptor → number of the client that opened it
        self._seen: dict[int, tuple[float, int]] = {}   # process → until when it is believed, number of its client

    # --- whose call, and what is to go wrong with it --------------------

    def begin(self, call: str, path: str, fh: int | None = None) -> tuple[Client, int]:
        """The client and its number; raises what the faults want, and waits while the server is away.

        `fh`: of a call that a process may make within execve (close-on-exec): its /proc entry cannot be read then. Both
        would wait for ever, and every other reader of that entry with them (measured on Linux 6.18: a slurmstepd that
        sums up memory stands in do_task_stat).
        """
        who = self._who() if fh is None else self._openers.get(fh, 0)
        while True:
            self._read_faults()
            away = self.faults.get("away")
            if not away or not (away is True or who in away):
                break
            time.sleep(0.02)
        for fault in self.faults.get("errors", ()):
            mine = not fault.get("clients") or who in fault["clients"]
            if mine and call in fault["calls"] and fnmatch.fnmatch(path, fault.get("match", "*")):
                raise OSError(getattr(errno, fault["errno"]), os.strerror(getattr(errno, fault["errno"])))
        with self._lock:
            return self.clients.setdefault(who, Client()), who

    def _who(self) -> int:
        pid = mfusepy.fuse_get_context()[2]
        until_s, who = self._seen.get(pid, (0.0, 0))
        if time.monotonic() < until_s:   # its exec of a file here looks at that file's attributes again
            return who
        try:
            who = os.stat(f"/proc/{pid}/ns/uts").st_ino
        except OSError:   # it has gone, or the kernel asks for itself
            return 0
        self._seen[pid] = (time.monotonic() + KNOWN_S, who)
        return who

    def _read_faults(self) -> None:
        status = os.stat(self.control)
        if (status.st_ino, status.st_mtime_ns) != self._sign:
            with open(self.control) as file:
                self.faults = json.load(file)
            self._sign = (status.st_ino, status.st_mtime_ns)

    def may(self, path: str, wanted: int) -> None:
        """As the server judges: root is nobody where it is squashed, and of a user's groups 16 arrive."""
        uid, gid, pid = mfusepy.fuse_get_context()
        if uid == 0 and self.faults.get("squash"):
            uid = gid = NOBODY
        if uid == 0:
            return
        found = os.lstat(self.behind + path)
        groups = {gid, *(_groups(pid)[:GROUPS_SENT] if self.faults.get("cut_groups") else _groups(pid))}
        shift = 6 if uid == found.st_uid else 3 if found.st_gid in groups else 0
        if wanted & ~(found.st_mode >> shift):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    def own(self, path: str) -> None:
        """A new file is its maker's."""
        uid, gid, _ = mfusepy.fuse_get_context()
        if uid == 0 and self.faults.get("squash"):
            uid = gid = NOBODY
        parent = os.stat(os.path.dirname(self.behind + path))
        gid = parent.st_gid if parent.st_mode & stat.S_ISGID else gid
        os.chown(self.behind + path, uid, gid, follow_symlinks=False)

    # --- names and attributes, as remembered --------------------

    def names(self, client: Client, folder: str) -> dict[str, int]:
        """The names of a directory that this client believes in."""
        with self._lock:
            if time.monotonic() >= client.until_s.get(folder, 0.0):
                client.forget(folder)
                found = {}
                for name in os.listdir(self.behind + folder):
                    try:
                        found[name] = self._pin(f"{folder}/{name}")
                    except FileNotFoundError:
                        continue
                client.names[folder] = found
                client.until_s[folder] = time.monotonic() + float(self.faults.get("late_s", 0.0))
            return client.names[folder]

    def file(self, client: Client, path: str) -> int:
        """A descriptor of the file that the client takes the path for; ENOENT where it remembers none. Under the lock:
        it is closed once the client asks the server anew.
        """
        folder, name = os.path.split(path)
        if not self.faults.get("late_s"):   # a listing can miss a name that is being replaced
            client.forget(folder)
            client.names[folder] = {name: self._pin(path)}
        known = self.names(client, folder) if self.faults.get("late_s") else client.names[folder]
        if name not in known:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return known[name]

    def _pin(self, path: str) -> int:
        return os.open(self.behind + path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)

    def changed(self, client: Client, *paths: str) -> None:
        """This client has changed these names."""
        with self._lock:
            for path in paths:
                client.forget(os.path.dirname(path))
                client.attributes.pop(path, None)

    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        client, _ = self.begin("getattr", path)
        with self._lock:
            known = client.attributes.get(path)
            if known and time.monotonic() < known[0]:
                return known[1]
            if fh is not None:
                found = os.fstat(fh)
            elif path == "/":
                found = os.lstat(self.behind)
            else:
                found = os.fstat(self.file(client, path))
        shift_ns = int(float(self.faults.get("clock_s", 0.0)) * 1e9)
        shown = {name: getattr(found, name) for name in STAT_FIELDS}
        shown |= {"st_mtime": found.st_mtime_ns + shift_ns, "st_ctime": found.st_ctime_ns + shift_ns,
                  "st_atime": found.st_atime_ns + shift_ns}
        late_s = float(self.faults.get("attributes_late_s", 0.0))
        if late_s:
            client.attributes[path] = (time.monotonic() + late_s, shown)
        return shown

    def access(self, path: str, amode: int) -> int:
        self.begin("access", path)
        if amode:
            self.may(path, amode)
        return 0

    def readdir(self, path: str, fh: int) -> Any:
        client, _ = self.begin("readdir", path)
        self.may(path, os.R_OK)
        folder = "" if path == "/" else path
        return [".", "..", *self.names(client, folder or "/")]

    def readlink(self, path: str) -> str:
        self.begin("readlink", path)
        return os.readlink(self.behind + path)

    def statfs(self, path: str) -> dict[str, int]:
        self.begin("statfs", path)
        found = os.statvfs(self.behind + path)
        shown = {name: getattr(found, name) for name in (
            "f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_favail", "f_ffree", "f_files", "f_flag", "f_frsize",
            "f_namemax")}
        return {**shown, **self.faults.get("statfs", {})}

    # --- files --------------------

    def open(self, path: str, flags: int) -> int:
        client, who = self.begin("open", path)
        wanted = {os.O_RDONLY: os.R_OK, os.O_WRONLY: os.W_OK}.get(flags & os.O_ACCMODE, os.R_OK | os.W_OK)
        self.may(path, wanted)
        if flags & os.O_TRUNC:
            client.attributes.pop(path, None)
        with self._lock:
            known = self.file(client, path)
            if os.fstat(known).st_nlink == 0 and self.faults.get("replaced") == "ESTALE":
                self.changed(client, path)
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            descriptor = os.open(f"/proc/self/fd/{known}", flags & ~(os.O_NOFOLLOW | os.O_EXCL | os.O_CREAT))
        self._synced[descriptor], self._openers[descriptor] = os.fstat(descriptor).st_size, who
        return descriptor

    def create(self, path: str, mode: int, flags: int) -> int:
        client, who = self.begin("create", path)
        self.may(os.path.dirname(path), os.W_OK | os.X_OK)
        is_new = not os.path.lexists(self.behind + path)
        descriptor = os.open(self.behind + path, flags | os.O_CREAT | os.O_CLOEXEC, mode)
        if is_new:
            os.fchmod(descriptor, mode)
            self.own(path)
        self.changed(client, path)
        self._synced[descriptor], self._openers[descriptor] = os.fstat(descriptor).st_size, who
        return descriptor

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        self.begin("read", path)
        if os.fstat(fh).st_nlink == 0 and self.faults.get("replaced") == "ESTALE":
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        client, _ = self.begin("write", path)
        client.attributes.pop(path, None)
        return os.pwrite(fh, data, offset)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        client, _ = self.begin("truncate", path)
        self.may(path, os.W_OK)
        client.attributes.pop(path, None)
        with self._lock:
            os.truncate(f"/proc/self/fd/{self.file(client, path)}" if fh is None else fh, length)
        return 0

    def flush(self, path: str, fh: int) -> int:
        return self._store("flush", path, fh)

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        return self._store("fsync", path, fh)

    def _store(self, call: str, path: str, fh: int) -> int:
        """Only here does the server see the data: where it refuses them, they are lost."""
        try:
            self.begin(call, path, fh)
        except OSError:
            if os.fstat(fh).st_size > self._synced.get(fh, 0):
                os.truncate(fh, self._synced.get(fh, 0))
            raise
        self._synced[fh] = os.fstat(fh).st_size
        return 0

    def release(self, path: str, fh: int) -> int:
        self._synced.pop(fh, None)
        self._openers.pop(fh, None)
        os.close(fh)
        return 0

    # --- names that change --------------------

    def link(self, target: str, source: str) -> int:
        client, _ = self.begin("link", target)
        self.may(os.path.dirname(target), os.W_OK | os.X_OK)
        os.link(self.behind + source, self.behind + target)
        if self.faults.get("link_says_exists"):   # the first answer was lost: the draft's attributes stay as known
            with self._lock:
                client.forget(os.path.dirname(target))
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
        self.changed(client, target, source)
        return 0

    def unlink(self, path: str) -> int:
        client, _ = self.begin("unlink", path)
        self.may(os.path.dirname(path), os.W_OK | os.X_OK)
        try:
            os.unlink(self.behind + path)
        finally:
            self.changed(client, path)
        return 0

    def rename(self, old: str, new: str) -> int:
        client, _ = self.begin("rename", new)
        self.may(os.path.dirname(old), os.W_OK | os.X_OK)
        if self.faults.get("rename_is_not_atomic"):
            # Of one mount the kernel lets nobody look while a rename goes on: the new name comes after the answer.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.behind + new)
            os.rename(self.behind + old, f"{self.behind}{new}.moving")
            threading.Timer(0.005, os.rename, (f"{self.behind}{new}.moving", self.behind + new)).start()
        else:
            os.rename(self.behind + old, self.behind + new)
        self.changed(client, old, new)
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        client, _ = self.begin("mkdir", path)
        self.may(os.path.dirname(path), os.W_OK | os.X_OK)
        os.mkdir(self.behind + path)
        os.chmod(self.behind + path, mode)
        self.own(path)
        self.changed(client, path)
        return 0

    def rmdir(self, path: str) -> int:
        client, _ = self.begin("rmdir", path)
        self.may(os.path.dirname(path), os.W_OK | os.X_OK)
        os.rmdir(self.behind + path)
        self.changed(client, path)
        return 0

    def symlink(self, target: str, source: str) -> int:
        client, _ = self.begin("symlink", target)
        self.may(os.path.dirname(target), os.W_OK | os.X_OK)
        os.symlink(source, self.behind + target)
        self.own(target)
        self.changed(client, target)
        return 0

    def chmod(self, path: str, mode: int) -> int:
        client, _ = self.begin("chmod", path)
        self._must_own(path)
        os.chmod(self.behind + path, mode)
        client.attributes.pop(path, None)
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        client, _ = self.begin("chown", path)
        self._must_own(path)
        os.chown(self.behind + path, uid, gid, follow_symlinks=False)
        client.attributes.pop(path, None)
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        client, _ = self.begin("utimens", path)
        shift_ns = int(float(self.faults.get("clock_s", 0.0)) * 1e9)
        now_ns = time.time_ns()
        os.utime(self.behind + path, ns=tuple(
            now_ns if _is_now(value) else value - shift_ns for value in times or (0, 0)))   # type: ignore[arg-type]
        client.attributes.pop(path, None)
        return 0

    def _must_own(self, path: str) -> None:
        uid = mfusepy.fuse_get_context()[0]
        uid = NOBODY if uid == 0 and self.faults.get("squash") else uid
        if uid not in (0, os.lstat(self.behind + path).st_uid):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def _is_now(value: int) -> bool:
    """Whether the server's own time is wanted: UTIME_NOW of utimensat(2) in its nanoseconds, with 0 seconds."""
    return value == 0 or value == (1 << 30) - 1


def _groups(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/status") as status:
            line = next(line for line in status if line.startswith("Groups:"))
    except (OSError, StopIteration):
        return []
    return [int(word) for word in line.split()[1:]]


def main() -> None:
    """Serve until it is unmounted."""
    behind, mount, control = sys.argv[1:4]
    mfusepy.FUSE(Server(behind, control), mount, foreground=True, allow_other=True, direct_io=True, hard_remove=True,
                 attr_timeout=0, entry_timeout=0, negative_timeout=0, fsname="sharedfs")


if __name__ == "__main__":
    main()
