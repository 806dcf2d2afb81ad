"""Reading the folders of watched runs, in disposable children: one frozen filesystem must not blind the watch.

Runs are read together with those below the same mount point. A group whose child hangs is left alone until that child
has gone, so that a frozen filesystem costs one hanging process. A run that hangs its group (a link to elsewhere) gets a
group of its own.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safelaunch.base.io import sharedfile
from safelaunch.base.io.probe import ChildAnswer, run_in_child, stuck_children
from safelaunch.decide.jobs.successor import is_before
from safelaunch.node import fresh
from safelaunch.run import plan as plans
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import State
from safelaunch.run.heartbeat import FILE as HEARTBEAT_FILE
from safelaunch.run.heartbeat import parse as parse_heartbeat
from safelaunch.run.heartbeat import to_json
from safelaunch.run.io import journal, ownership, registry, runfolder
from safelaunch.script.io import laterjobs
from safelaunch.slurm import slurmoutput, via
from safelaunch.watch import watch, watchfacts
from safelaunch.watch.io.memory import Known
from safelaunch.watch.watched import SlurmAnswer, Watched, read_notes

DEADLINE_S = 10.0        # a sick parallel filesystem answers in seconds; for a group at once
CHUNK = 8                # runs whose journals are read by one child: a second at most, on a busy machine
MAX_STUCK = 4            # hanging children in all; more would count against the user's processes
MOUNTS = Path("/proc/self/mountinfo")
_OUTPUT_TAIL = 256 << 10
_FAULTS = (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, OverflowError)

Ask = Callable[[Callable[[], Any], float], ChildAnswer[Any]]


@dataclass(frozen=True)
class RunQuestion:
    """What a child is to examine: a run, what Slurm says of it, and what this watcher remembers of it."""

    dir: str
    word: SlurmAnswer
    known: Known
    now: float
    now_s: float
    named: bool              # on the command line, by a person who knows its cluster
    host: str
    slurm_conf: str
    cluster: str = ""        # the name of the one that this watch asks; "" = nobody says it


@dataclass
class _Group:
    late: bool = False
    stuck: bool = False


@dataclass
class RunReader:
    """Asks groups of runs what has changed; `ask` runs a function in a child with a deadline."""

    ask: Ask = run_in_child
    _groups: dict[str, _Group] = field(default_factory=dict)
    _alone: set[str] = field(default_factory=set)
    _registry: tuple[list[int], list[tuple[str, str]]] = field(default_factory=lambda: ([], []))
    _mounts: tuple[str, ...] = ()

    def registered(self, cluster: str = "") -> list[tuple[str, str]] | None:
        """(folder, job name) of the user's runs, newest first; None where the home does not answer. Those of clusters
        that are known not to be this one are left out.
        """
        answer = self._ask("registry", lambda: _registered(self._registry[0], cluster))
        if not answer.is_ok:
            return None
        if answer.value is not None:
            sign, rows = answer.value
            self._registry = (sign, [(str(dir), str(name)) for dir, name in rows])
        return self._registry[1]

    def glance(self, runs: Mapping[str, Known]) -> tuple[dict[str, Any], list[str]]:
        """(folder → its heartbeat if that has changed, folders that did not answer)."""
        self._mounts = _mount_points()
        changed: dict[str, Any] = {}
        blind: list[str] = []
        for group, dirs in self._grouped(runs).items():
            rows = self._walk(group, dirs, lambda dir: _glance(dir, runs[dir].sign))
            if rows is None:
                blind += dirs
            else:
                changed.update(rows)
        return changed, blind

    def examine(self, looks: Sequence[RunQuestion]) -> tuple[dict[str, Any], list[str]]:
        """(folder → what a child makes of it, folders that did not answer)."""
        found: dict[str, Any] = {}
        blind: list[str] = []
        by_dir = {look.dir: look for look in looks}
        for group, dirs in self._grouped({dir: look.known for dir, look in by_dir.items()}).items():
            for start in range(0, len(dirs), CHUNK):
                chunk = dirs[start:start + CHUNK]
                rows = self._walk(group, chunk, lambda dir: _examine(by_dir[dir]))
                if rows is None:
                    blind += dirs[start:]
                    break
                found.update(rows)
        return found, blind

    def visit(self, runs: Mapping[str, Known], work: Callable[[str], Any]) -> tuple[dict[str, Any], list[str]]:
        """(folder → what `work` finds there, folders that did not answer)."""
        self._mounts = _mount_points()
        found: dict[str, Any] = {}
        blind: list[str] = []
        for group, together in self._grouped(runs).items():
            rows = self._walk(group, together, work)
            if rows is None:
                blind += together
            else:
                found.update(rows)
        return found, blind

    def _grouped(self, runs: Mapping[str, Known]) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = {}
        of_parent: dict[str, str] = {}   # runs lie beside each other
        for dir, known in runs.items():
            parent = (known.real or dir).rpartition("/")[0]
            if parent not in of_parent:
                of_parent[parent] = next((mount for mount in self._mounts if f"{parent}/".startswith(mount)), "/")
            groups.setdefault(dir if dir in self._alone else of_parent[parent], []).append(dir)
        return groups

    def _walk(self, group: str, dirs: Sequence[str], visit: Callable[[str], Any]) -> dict[str, Any] | None:
        """folder → `visit` of it, all in one child, those without news left out; None = it does not answer."""
        place = mmap.mmap(-1, 8)   # shared with the child: where it is when it hangs

        def walk() -> list[tuple[int, Any]]:
            rows = []
            for number, dir in enumerate(dirs):
                place[:8] = struct.pack("q", number)
                row = _safely(visit, dir)
                if row is not None:
                    rows.append((number, row))
            return rows

        answer = self._ask(group, walk)
        if answer.is_ok and answer.value is not None:
            return {dirs[number]: row for number, row in answer.value}
        if answer.took_s > 0.0 and answer.late and len(dirs) > 1:
            self._alone.add(dirs[struct.unpack("q", place[:8])[0]])
        return None

    def _ask(self, group: str, work: Callable[[], Any]) -> ChildAnswer[Any]:
        """The answer of a child; late at once while the last one of this group still hangs."""
        known = self._groups.setdefault(group, _Group())
        stuck, holding = stuck_children(), sum(one.stuck for one in self._groups.values())
        if (known.stuck and stuck >= holding) or (known.late and stuck >= MAX_STUCK):
            return ChildAnswer(late=True)
        answer = self.ask(work, DEADLINE_S)
        known.late = answer.late
        known.stuck = answer.late and stuck_children() > stuck - known.stuck
        return answer


def _safely(visit: Callable[[str], Any], dir: str) -> Any:
    """A bad, old or hostile folder is reported and skipped; it must not hide the others."""
    try:
        return visit(dir)
    except _FAULTS as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}


# --- what the children do -----------------------------------------------------------------------------------------


def _registered(sign: Sequence[int], cluster: str) -> tuple[list[int], list[tuple[str, str]]] | None:
    """None = unchanged."""
    with contextlib.suppress(FileNotFoundError):
        status = registry.file().stat()
        now = [status.st_ino, status.st_mtime_ns, status.st_size]
        if now == sign:
            return None
        return now, [(str(entry.dir), f"{entry.name}.{entry.run_id}") for entry in registry.listed()
                     if not entry.cluster or cluster in ("", entry.cluster)]
    return [], []


def _glance(dir: str, sign: Sequence[int] | None) -> list[Any] | None:
    """[sign, heartbeat, folder without links, claim] where the heartbeat's file is another one than at the last look.
    Heartbeat None = there is none. The last claim comes at the first look only. Bare calls: a thousand runs are to take
    milliseconds.
    """
    try:
        descriptor = sharedfile.open_file(f"{dir}/{HEARTBEAT_FILE}")
    except FileNotFoundError:
        return None if sign == [] else [[], None, os.path.realpath(dir), journal.last_claim(Path(dir))]
    try:
        status = os.fstat(descriptor)
        now = [status.st_ino, status.st_mtime_ns, status.st_size]
        if now == sign:
            return None
        pulse = parse_heartbeat(sharedfile.parse_json(os.read(descriptor, sharedfile.HEARTBEAT_BYTES)))
        told = None if pulse is None else to_json(pulse)
    finally:
        os.close(descriptor)
    if sign:
        return [now, told, "", None]
    return [now, told, os.path.realpath(dir), journal.last_claim(Path(dir))]


def _examine(question: RunQuestion) -> dict[str, Any]:
    """The judgement on a run, and what is needed to act on it."""
    dir, known = Path(question.dir), question.known
    fresh.see(question.dir, *(f"{dir}/{name}" for name in ("claims", "journal", "control")))
    claim = journal.last_claim(dir)          # before the journal: whoever acts in between takes the next number
    meta = sharedfile.read_json(dir / "run.json")
    plan = plans.of_config(meta["config"], meta["run_id"])
    events = journal.read(dir, steps_kept=1).events
    state, notes = fold(events), read_notes(events)
    last, of = state.job, str(meta.get("cluster_name") or "")
    # What this Slurm has shown is true, whatever a cluster was called when the run was submitted.
    elsewhere = of if of and question.cluster not in ("", of) and not known.seen else ""
    watched = Watched(
        plan, state, known.heartbeat, known.silent_s(question.now_s),
        question.now_s - known.claim_s if claim == known.claim and known.claim_s is not None else 0.0,
        runfolder.requests_of(runfolder.read_requests(dir, plan.kill_file)),
        _scancelled(dir, state), notes, ownership.why_not_own_run(dir) is None,
        not elsewhere and (question.named or known.seen or (of != "" and of == question.cluster)
                           or _is_home(question, dir, [event.host for event in events if event.gen == 0])),
        (*(job for job in sorted(path.name.removeprefix("orphaned-") for path in (dir / "control").glob("orphaned-*"))
           if runfolder.is_orphaned(dir, job)),
         *(id for id in _newest(state) if slurmoutput.is_ended_by_prolog(_output(dir, id), id))), elsewhere)
    judged = watch.judge(watched, question.word, question.now)
    ids = {job.id for job in (last, *state.jobs[-1:]) if job is not None} | {state.successor or ""}
    row: dict[str, Any] = {
        "row": judged.row, "text": judged.text, "asks": sorted(judged.asks), "act": None, "claim": claim,
        "ended": state.ended is not None and not watchfacts.unfinished(question.word),
        "hands_over": via.is_at_end(state.via or plan.restart.via),
        **{name: dict(plan.sbatch).get(name) or "" for name in ("partition", "reservation")},
        "name": plan.name, "job_name": plan.job_name, "jobs": sorted(ids - {""})}
    if judged.act is not None:
        row |= {"act": [type(judged.act).__name__, asdict(judged.act)], "seq": notes.last_seq, "meta": {
            "config": meta["config"], "run_id": meta["run_id"], "cwd": str(meta.get("cwd", "/")),
            "later": laterjobs.read(Path(dir))},
            "last_job": state.jobs[-1].id if last is None and state.jobs else last.id if last is not None else None}
    return row


def _is_home(question: RunQuestion, dir: Path, hosts: Sequence[str]) -> bool:
    """Whether the run was submitted on this host, to the cluster that squeue asks here."""
    with contextlib.suppress(OSError):
        return question.host in hosts[:1] and runfolder.read_env(dir).get("SLURM_CONF", "") == question.slurm_conf
    return False


def _scancelled(dir: Path, state: State) -> tuple[str, ...]:
    """The newest jobs in whose output a scancel stands."""
    return tuple(id for id in _newest(state) if slurmoutput.parse_ending(_output(dir, id), id) == "cancelled")


def _newest(state: State) -> tuple[str, ...]:
    """The current job and later ones; where none has started, all."""
    last = state.job.id if state.job is not None else None
    return tuple(job.id for job in state.jobs if last is None or job.id == last or is_before(last, job.id))


def _output(dir: Path, job: str) -> str:
    """The end of a job's own output; "" = there is none."""
    try:
        return sharedfile.read_end(dir / f"slurm-{job}.out", _OUTPUT_TAIL).decode("latin-1")
    except (FileNotFoundError, sharedfile.OddFile):
        return ""


def _mount_points() -> tuple[str, ...]:
    """Where filesystems are mounted, the deepest first; the kernel's list, which touches none of them (proc(5))."""
    lines = MOUNTS.read_text(errors="replace").splitlines()
    points = {line.split()[4].encode().decode("unicode_escape") for line in lines}
    return tuple(sorted((f"{point.rstrip('/')}/" for point in points), key=len, reverse=True))
