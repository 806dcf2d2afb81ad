"""What the watch remembers of runs between two checks; `--once`, called by cron, keeps it in the user's state folder.

Times are of this host's monotonic clock since its boot: no jump of a wall clock makes a run look dead. After a reboot,
or on another login node, the watch counts from the start. The file is a memory aid: losing it costs some minutes.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safelaunch.base.io import durable, sharedfile
from safelaunch.base.io.probe import run_in_child
from safelaunch.nodehealth.ledgerlines import is_node_name
from safelaunch.run import heartbeat
from safelaunch.run.heartbeat import Heartbeat
from safelaunch.run.io import registry

VERSION = 1
HOME_S = 10.0            # as for the run folders
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass
class Known:
    """One run. Seconds are of this host's monotonic clock; None = not seen yet."""

    job_name: str = ""
    ended: bool = False
    sign: list[int] | None = None         # of pulse.json: inode, mtime, size; [] = there is none
    heartbeat: Heartbeat | None = None
    moved_s: float | None = None          # when the heartbeat was last seen to be another one
    claim: int = 0
    claim_s: float | None = None
    absences: int = 0
    seen: bool = False                    # this Slurm has shown a job of it
    hands_over: bool = False              # its leader makes the next job at the end of this one: none waits until then
    outline: str = ""
    outline_s: float = 0.0
    short_s: float | None = None          # since when its waiting job has lacked nodes; None = it does not
    row: str = ""
    text: str = ""
    running: list[Any] | None = None      # of its running job: elapsed seconds, start, nodelist, when Slurm was asked
    told_s: float | None = None
    real: str = ""                        # its folder without links
    tries_left: int = 0                   # to tell people what this watch has done

    def silent_s(self, now_s: float) -> float:
        """For how long its heartbeat has not moved under this watcher's eyes."""
        return 0.0 if self.moved_s is None else max(0.0, now_s - self.moved_s)


@dataclass
class Memory:
    """All runs, and when Slurm was asked."""

    runs: dict[str, Known] = field(default_factory=dict)
    asked_s: float | None = None
    every_s: float = 60.0
    no_sacct_until_s: float = 0.0
    no_word_since_s: float = 0.0          # since when slurmdbd has been away; 0 = it is not
    cluster: str = ""                     # the name of the cluster that `scontrol` has named; asked once a boot
    scontrol: str = ""

    def save(self, path: Path) -> None:
        """Write it, replaced as a whole, in a child, for homes freeze, too; raises OSError."""
        content = {"v": VERSION, "boot": _boot(), "asked_s": self.asked_s, "every_s": self.every_s,
                   "no_sacct_until_s": self.no_sacct_until_s, "cluster": self.cluster, "scontrol": self.scontrol,
                   "runs": {dir: _render(known) for dir, known in self.runs.items()}}
        saved = run_in_child(lambda: _write(path, json.dumps(content, separators=(",", ":"))), HOME_S)
        if not saved.is_ok:
            raise OSError(saved.errno, "it does not answer" if saved.late else os.strerror(saved.errno))


def file(place: str) -> Path:
    """Where it stands, beside the list of runs: a file for each place that watches, a cluster or a host. Two crontabs
    that share a home would wipe out what the other one saw. Raises OSError.
    """
    return registry.file().with_name(f"watch-{place}.json" if is_node_name(place) else "watch.json")


def load(path: Path) -> Memory:
    """What was saved; after a reboot, on another host or out of a torn file only which runs have ended, or nothing."""
    content = run_in_child(lambda: sharedfile.read(path).decode(errors="replace"), HOME_S)
    try:
        raw: Any = json.loads(content.value or "")
        if raw["v"] != VERSION:
            return Memory()
        runs = {str(dir): _parse(known) for dir, known in raw["runs"].items()}
        if raw["boot"] == _boot():
            asked_s = raw["asked_s"]
            return Memory(runs, None if asked_s is None else float(asked_s), float(raw["every_s"]),
                          float(raw["no_sacct_until_s"]), cluster=str(raw.get("cluster", "")),
                          scontrol=str(raw.get("scontrol", "")))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Memory()
    return Memory({dir: Known(job_name=known.job_name, ended=known.ended, seen=known.seen)
                   for dir, known in runs.items()})


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    durable.put(path, text.encode(), sync=bool)


def _render(known: Known) -> dict[str, Any]:
    """An ended run is kept as such and no more: once people are told it is never looked at again."""
    if known.ended and not known.tries_left:
        return {"job_name": known.job_name, "ended": True}
    fields = asdict(known)
    del fields["heartbeat"]
    return {**fields, "pulse": None if known.heartbeat is None else heartbeat.to_json(known.heartbeat)}


def _parse(raw: dict[str, Any]) -> Known:
    """Raises TypeError for keys of another version."""
    fields = {name: value for name, value in raw.items() if name != "pulse"}
    return Known(**fields, heartbeat=heartbeat.parse(raw["pulse"]) if raw.get("pulse") else None)


def _boot() -> str:
    """This boot of this host: monotonic clocks mean the same within it (random(4))."""
    return BOOT_ID.read_text().strip()
