"""What the measurements of a shared folder mean for a run that lives there: a row for each, ok, caution or not safe.

Measured by site.io.sitefolder; a measurement is an object with its numbers, {"error": …}, or {"late": true}.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

OK, CAUTION, NOT_SAFE, UNKNOWN = "ok", "caution", "not safe", "unknown"

SLOW_S = 1.0            # an fsync on a busy Lustre or GPFS (run.io.shared, FROZEN_AFTER_S is twice that)
CLOCK_S = 5.0
FREE_BYTES = 1 << 30
FREE_FILES = 10_000
GROUPS_SENT = 16        # AUTH_SYS: rfc5531, appendix A
LOCAL = ("ext4", "xfs", "btrfs", "tmpfs", "overlay", "ramfs", "zfs", "ext3")
ONE_WINNER = "claims keep two supervisors from acting at once: each must have one winner"
RISKY = {"soft": "after a timeout a write fails with EIO instead of waiting for the server",
         "softerr": "after a timeout a write fails instead of waiting for the server",
         "nocto": "what others append may be seen as late as attributes are"}


@dataclass(frozen=True)
class SiteRow:
    """One line of the answer; `setting`: what follows for train.yaml, or what else to do."""

    check: str
    verdict: str
    measured: str
    means: str
    setting: str = ""


def judge(measured: Mapping[str, Mapping[str, object]]) -> tuple[SiteRow, ...]:
    """A row for each measurement that was made, in the order of the table."""
    return tuple(_row(name, measured[name]) for name in CHECKS if name in measured)


def _row(name: str, found: Mapping[str, object]) -> SiteRow:
    if found.get("late"):
        return SiteRow(name, UNKNOWN, "no answer in time", "a folder that hangs now tells nothing: try again later")
    if "error" in found:
        verdict, means = NEEDS[name]
        return SiteRow(name, verdict, str(found["error"]), means)
    return CHECKS[name](name, **found)


def _mount(name: str, *, kind: str, source: str, options: Sequence[str]) -> SiteRow:
    measured = f"{kind} from {source}"
    if kind in LOCAL:
        return SiteRow(name, CAUTION, measured, "this looks like a disk of this host: a run folder must be the same on "
                                            "all nodes")
    bad = [f"{option}: {RISKY[option]}" for option in options if option in RISKY]
    if bad:
        return SiteRow(name, CAUTION, measured, "; ".join(bad))
    return SiteRow(name, OK, measured, "nothing in its mount options is known to be a risk")


def _write(name: str, *, took_s: float, same: bool) -> SiteRow:
    measured = f"create, write, fsync and close took {took_s:.3f} s"
    if not same:
        return SiteRow(name, NOT_SAFE, "what was read back differs from what was written", "the journal gets lost")
    if took_s > SLOW_S:
        return SiteRow(name, CAUTION, measured,
                       "slow: journal lines wait on the node's own disk, and people see them late")
    return SiteRow(name, OK, measured, "each line of the journal can be made durable")


def _append(name: str, *, made: int, right: int) -> SiteRow:
    measured = f"{right} of {made} lines of two writers are there, whole"
    if right != made:
        return SiteRow(name, CAUTION, measured,
                       "a job's output is written by Slurm and by the supervisor: lines of it can "
                                            "get lost. The journal has one writer a file and is not concerned")
    return SiteRow(name, OK, measured, "a job's output keeps the lines of both of its writers")


def _rename(name: str, *, renames: int, reads: int, torn: int) -> SiteRow:
    measured = f"{renames} renames over a name, read {reads} times, {torn} times badly"
    if torn:
        return SiteRow(name, NOT_SAFE, measured,
                       "a reader can miss the pulse or an attempt's record while it is replaced")
    return SiteRow(name, OK, measured, "a file that is replaced is the old one or the new one, never none")


def _link(name: str, *, rounds: int, wins: int, racers: int, lies: int) -> SiteRow:
    measured = f"{wins} winners of {rounds} races between {racers} processes"
    if wins != rounds:
        return SiteRow(name, NOT_SAFE, measured, ONE_WINNER)
    lied = f"; {lies} times link() had succeeded and said EEXIST" if lies else ""
    return SiteRow(name, OK, measured + lied, "a claim has exactly one owner")


def _clock(name: str, *, offset_s: float) -> SiteRow:
    side = "ahead of" if offset_s > 0 else "behind"
    measured = f"the file server's clock is {abs(offset_s):.1f} s {side} this host's"
    if abs(offset_s) > CLOCK_S:
        return SiteRow(name, CAUTION, measured,
                       "nothing is decided by it; times of checkpoints and requests look wrong")
    return SiteRow(name, OK, measured, "times of files can be held against those of the log")


def _space(name: str, *, free_bytes: int, free_files: int | None) -> SiteRow:
    measured = f"{free_bytes / (1 << 30):.1f} GiB free" + (f", {free_files:,} files" if free_files is not None else "")
    if not free_bytes or free_files == 0:
        return SiteRow(name, NOT_SAFE, measured, "nothing can be written")
    if free_bytes < FREE_BYTES or (free_files is not None and free_files < FREE_FILES):
        return SiteRow(name, CAUTION, measured, "a log of a long run, or a checkpoint, may fill it")
    return SiteRow(name, OK, measured, "a quota does not show here: it shows when it is hit, and the run waits then")


def _exec(name: str, *, noexec: bool) -> SiteRow:
    if noexec:
        return SiteRow(name, CAUTION, "mounted noexec", "safelaunch runs nothing from here; your venv would not start")
    return SiteRow(name, OK, "programs may run from here", "")


def _groups(name: str, *, count: int, is_nfs: bool) -> SiteRow:
    measured = f"you are in {count} group{'s' if count != 1 else ''}"
    if is_nfs and count > GROUPS_SENT:
        return SiteRow(name, CAUTION, measured,
                       f"NFS with sec=sys sends {GROUPS_SENT} of them, unless its server looks "
                                            "them up: folders of your other groups may be closed to you")
    return SiteRow(name, OK, measured, "")


# A check takes the numbers of its measurement by their names.
CHECKS: dict[str, Callable[..., SiteRow]] = {
    "mount": _mount, "write": _write, "append": _append, "rename": _rename, "link": _link, "clock": _clock,
    "space": _space, "exec": _exec, "groups": _groups,
}
# What an error means where a check could not even be made.
NEEDS: dict[str, tuple[str, str]] = {
    "mount": (UNKNOWN, "its mount is not known"),
    "write": (NOT_SAFE, "a run needs to create, write and fsync files here"),
    "append": (NOT_SAFE, "a run needs to append to files here"),
    "rename": (NOT_SAFE, "a run needs to replace files by rename here"),
    "link": (NOT_SAFE, "claims need hard links: without them nothing keeps two supervisors from acting at once"),
    "clock": (UNKNOWN, "the server's clock is not known"),
    "space": (UNKNOWN, "free space is not known"),
    "exec": (UNKNOWN, "whether programs may run from here is not known"),
    "groups": (UNKNOWN, "your groups are not known"),
}
