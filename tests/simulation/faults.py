"""Faults done to a simulation: one function a kind, in a literal table."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from greenlet import GreenletExit  # type: ignore[import-untyped,unused-ignore]

from safelaunch.decide.jobs.cancel import is_explained_handover
from safelaunch.run.fold.folding import fold
from safelaunch.run.io import journal
from tests.simulation import person
from tests.simulation.hosts import Host
from tests.simulation.scenario import MANNERS, Fault
from tests.simulation.slurm import Job, render_end

if TYPE_CHECKING:
    from tests.simulation.process import Actor
    from tests.simulation.sim import Sim


AT_CALL_S = 30.0
# What can go wrong at an outside call: with the process, its host, the folder, Slurm; and how Slurm answers.
AT_CALL = ("dies_before", "dies_after", "pauses", "crashes", "stands_still", "freeze", "refuses", "loses_links",
           "slurm_hung", "slurm_gone", *MANNERS)


def inject(sim: Sim, fault: Fault) -> None:
    """Do it now, and undo it when its time is over."""
    sim.trace("fault", str(fault))
    _TABLE[fault.kind](sim, fault)


def inject_at(sim: Sim, actor: Actor, kind: str) -> None:
    """Let a fault happen at the very moment of an outside call."""
    if kind in MANNERS:
        sim.slurm.manners.append(kind)
    elif kind == "dies_before":
        sim.clock.after(0.0, partial(sim.bury, actor))
        actor.process.dead = True
        raise GreenletExit
    elif kind == "dies_after":
        sim.clock.after(0.001, partial(sim.kill_actor, actor))
    elif kind == "pauses":
        actor.process.hold()
        sim.clock.after(8.0, lambda: actor.process.let_go() if actor.host.is_running else None)
    elif kind == "loses_links":
        actor.host.mount.loses_links = 1
    else:
        fault = Fault(kind, sim.clock.t, AT_CALL_S)
        act: Callable[[], object] = partial(inject, sim, fault)
        if kind in ("crashes", "stands_still"):
            doing = _crash if kind == "crashes" else _silence
            act = partial(doing, sim, actor.host, fault)
        sim.clock.after(0.0, act)


def _batch(sim: Sim) -> Host | None:
    job = sim.live_job()
    return sim.hosts[job.batch_host] if job is not None else None


def _worker(sim: Sim, x: int) -> Host | None:
    job = sim.live_job()
    nodes = [node for node in job.nodes if node != job.batch_host] if job is not None else []
    return sim.hosts[nodes[x % len(nodes)]] if nodes else None


def _rank_dies(sim: Sim, fault: Fault) -> None:
    attempt = sim.live_attempt()
    if attempt is None:
        return
    task = attempt.tasks[fault.x % len(attempt.tasks)]
    if task.host.is_running:
        code, signal = ((1, None), (137, 9), (139, 11))[fault.x % 3]
        attempt.lines += [f"[{task.host.name}:{task.index}]: Traceback (most recent call last):",
                          f"[{task.host.name}:{task.index}]: RuntimeError: injected"] if signal is None else []
        task.rank_ends(code, signal)


def _gpu_dies(sim: Sim, fault: Fault) -> None:
    """The driver says so in the log, and its rank dies: the node is a suspect that still answers."""
    attempt = sim.live_attempt()
    task = None if attempt is None else attempt.tasks[fault.x % len(attempt.tasks)]
    if attempt is not None and task is not None and task.host.is_running:
        attempt.lines.append(f"[{task.host.name}:{task.index}]: NVRM: Xid (PCI:0000:90:00): 79, pid=4242, name=python, "
                             "GPU has fallen off the bus.")
        sim.dead_gpus.add(task.host.name)
        task.rank_ends(1, None)


def _all_ranks_fail(sim: Sim, fault: Fault) -> None:
    """A user's bug: every attempt from now on dies at the same step, on any node."""
    attempt = sim.live_attempt()
    if fault.x % 4 == 0:
        sim.bug_step = (attempt.step if attempt is not None else 0) + 1
    elif attempt is not None:
        for task in attempt.tasks:
            if task.host.is_running:
                task.rank_ends(1, None)


def _truncate(sim: Sim, fault: Fault) -> None:
    sim.truncate_next()


def _corrupt(sim: Sim, fault: Fault) -> None:
    """The newest checkpoint has rotted, and looks whole; an attempt has to load it for anybody to notice."""
    attempt = sim.live_attempt()
    newest = sim.saves[-1][1] if sim.saves else 0
    # One that has been loaded before is good: nothing rots later in here.
    if newest and attempt is not None and all(known.first_step != newest for known in sim.attempts):
        sim.corrupt.add(newest)
        attempt.tasks[0].rank_ends(137, 9)


def _forgets(sim: Sim, fault: Fault) -> None:
    """From now on the training starts from nothing: somebody has changed the script that should load the checkpoint."""
    sim.is_forgetful = True


def _leader_dies(sim: Sim, fault: Fault) -> None:
    leader = sim.live_leader()
    if leader is not None:
        sim.kill_leader(leader)


def _leader_dies_at_call(sim: Sim, fault: Fault) -> None:
    """At one of the next outside calls, before or after it."""
    kind = "dies_before" if fault.x % 2 else "dies_after"
    sim.dies_at = (len(sim.outside_calls) + 1 + fault.x % 17, kind)


def _leader_pauses(sim: Sim, fault: Fault) -> None:
    leader = sim.live_leader()
    if leader is not None and leader.host.is_running:
        leader.host.troubled_t = max(leader.host.troubled_t, sim.clock.t + fault.length_s)
        leader.process.hold()
        sim.clock.after(fault.length_s, lambda: leader.process.let_go() if leader.host.is_running else None)


def _crash(sim: Sim, host: Host | None, fault: Fault) -> None:
    if host is None or host.dead:
        return
    host.die()
    sim.net.change()
    sim.slurm.notice()

    def boot() -> None:
        host.boot()
        sim.net.change()
        sim.slurm.notice()
    sim.clock.after(fault.length_s, boot)


def _silence(sim: Sim, host: Host | None, fault: Fault) -> None:
    if host is None or not host.is_running:
        return
    host.troubled_t = max(host.troubled_t, sim.clock.t + fault.length_s)
    host.stop()
    sim.slurm.notice()

    def resume() -> None:
        host.resume()
        sim.slurm.notice()
    sim.clock.after(fault.length_s, resume)


def _cut(sim: Sim, host: Host | None, fault: Fault, directions: tuple[bool, bool] = (True, True)) -> None:
    if host is None:
        return
    host.troubled_t = max(host.troubled_t, sim.clock.t + fault.length_s)
    others = [other.name for other in sim.hosts.values() if other is not host]
    pairs = ({(host.name, other) for other in others if directions[0]}
             | {(other, host.name) for other in others if directions[1]}) - sim.net.cut
    sim.net.cut |= pairs
    sim.net.change()
    sim.ranks_changed()

    def mend() -> None:
        sim.net.cut -= pairs
        sim.net.change()
        sim.ranks_changed()
    sim.clock.after(fault.length_s, mend)


def _one_way_cut(sim: Sim, fault: Fault) -> None:
    host = _worker(sim, fault.x) if fault.x % 2 else _batch(sim)
    _cut(sim, host, fault, (True, False) if fault.x % 4 < 2 else (False, True))


def _pair_cut(sim: Sim, fault: Fault) -> None:
    """Between the leader and its standby only. Not among the seeds' kinds: those would all become others."""
    batch = _batch(sim)
    standby = next((one.host for one in reversed(sim.supervisors) if one.host is not batch), None)
    if batch is None or standby is None:
        return
    _trouble(sim, batch, standby, until_t=fault.end_t)
    pairs = {(batch.name, standby.name), (standby.name, batch.name)} - sim.net.cut
    sim.net.cut |= pairs
    sim.net.change()
    sim.ranks_changed()

    def mend() -> None:
        sim.net.cut -= pairs
        sim.net.change()
        sim.ranks_changed()
    sim.clock.after(fault.length_s, mend)


def _trouble(sim: Sim, *hosts: Host, until_t: float) -> None:
    """A supervisor there may rightly be taken for dead."""
    for host in hosts:
        host.troubled_t = max(host.troubled_t, until_t)


def _freeze(sim: Sim, fault: Fault) -> None:
    _trouble(sim, *sim.hosts.values(), until_t=fault.end_t)
    for host in sim.hosts.values():
        host.mount.freeze(fault.end_t)


def _freeze_one(sim: Sim, fault: Fault) -> None:
    host = _worker(sim, fault.x) if fault.x % 2 else _batch(sim)
    if host is not None:
        _trouble(sim, host, until_t=fault.end_t)
        host.mount.freeze(fault.end_t)


def _refuses(sim: Sim, fault: Fault) -> None:
    _trouble(sim, *sim.hosts.values(), until_t=fault.end_t)
    number = (errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO)[fault.x % 4]
    for host in sim.hosts.values():
        host.mount.refuses = number

    def mend() -> None:
        for host in sim.hosts.values():
            host.mount.refuses = 0
    sim.clock.after(fault.length_s, mend)


def _unreadable(sim: Sim, fault: Fault) -> None:
    host = _batch(sim)
    if host is not None:
        _trouble(sim, host, until_t=fault.end_t)
        host.mount.unreadable = errno.ESTALE
        sim.clock.after(fault.length_s, lambda: setattr(host.mount, "unreadable", 0))


def _loses_links(sim: Sim, fault: Fault) -> None:
    for host in sim.hosts.values():
        host.mount.loses_links = 1 + fault.x % 2


def _lies_links(sim: Sim, fault: Fault) -> None:
    """The answer to link() got lost, and its repetition says that the name exists: link(2), NFS."""
    for host in sim.hosts.values():
        host.mount.lies_links = 1 + fault.x % 3


def _flaky(sim: Sim, fault: Fault) -> None:
    """Reads and claims fail now and then: a file that was replaced (ESTALE), a server that gives up (EIO)."""
    host = _batch(sim) if fault.x % 3 else sim.hosts["login"]
    if host is not None:
        _trouble(sim, host, until_t=fault.end_t)
        host.mount.flaky = errno.ESTALE if fault.x % 2 else errno.EIO
        sim.clock.after(fault.length_s, lambda: setattr(host.mount, "flaky", 0))


def _wall_jump(sim: Sim, fault: Fault) -> None:
    host = _batch(sim)
    if host is not None:
        host.wall_offset_s += (-7200.0, -60.0, -2.0, 30.0, 3600.0)[fault.x % 5]


def _slurm_hung(sim: Sim, fault: Fault) -> None:
    sim.slurm.is_hung = True

    def go_on() -> None:
        sim.slurm.is_hung = False
        sim.slurm.work_off()
    sim.clock.after(fault.length_s, go_on)


def _slurm_gone(sim: Sim, fault: Fault) -> None:
    sim.slurm.is_gone = True

    def back() -> None:
        sim.slurm.is_gone = False
        sim.slurm.notice()
    sim.clock.after(fault.length_s, back)


def _manners(sim: Sim, fault: Fault) -> None:
    sim.slurm.manners += fault.words


def _preempt(sim: Sim, fault: Fault) -> None:
    job = sim.live_job()
    if job is not None:
        sim.slurm.preempt(job)


def _step_ended(sim: Sim, fault: Fault) -> None:
    """Slurm ends the step of the attempt and lets the job run, for a reason of its own."""
    attempt = sim.live_attempt()
    if attempt is None:
        return
    line = render_end(sim.scenario.words, f"STEP {attempt.job}.{attempt.number}", attempt.host.name, "")
    attempt.lines.append(line.strip())
    for task in attempt.tasks:
        if task.host.is_running:
            task.rank_ends(143, 15)


def _busy(sim: Sim, fault: Fault) -> None:
    """No step starts: what they ask for is not free on the nodes of the job."""
    sim.busy_until_t = fault.end_t


def _removed(sim: Sim, fault: Fault) -> None:
    """A person removes or renames what holds the run folder, and puts it back later where the fault has a length.
    `words`: hosts that see it all the same.
    """
    sim.still_sees = frozenset(fault.words)
    server = sim.folder / "server"
    (server / "run").rename(server / "run.old")
    sim.run_dir = server / "run.old"   # where this simulation reads; nothing of the run's own knows that name

    def put_back() -> None:
        (server / "run.old").rename(server / "run")
        sim.run_dir = sim.folder / "run"
    if fault.length_s:
        sim.clock.after(fault.length_s, put_back)


def _touch(name: str) -> Callable[[Sim, Fault], None]:
    def touch(sim: Sim, fault: Fault) -> None:
        person.touch(sim, name)
        sim.a_person_says(name)
    return touch


def _touch_kept(name: str) -> Callable[[Sim, Fault], None]:
    """`safelaunch release` and `extend` touch their files while a site is kept, and only then."""
    def touch(sim: Sim, fault: Fault) -> None:
        if sim.state().preserving_until is not None:
            path = sim.run_dir / "control" / name
            path.touch()
            os.utime(path, (sim.server_t(), sim.server_t()))
    return touch


def _hold(sim: Sim, fault: Fault) -> None:
    """A person puts the run on hold, and lets it go on later."""
    sim.types(person.hold)
    mine = [sim.clock.t, math.inf]
    sim.holds.append(mine)

    def resume() -> None:
        mine[1] = sim.clock.t
        sim.types(person.resume)
    sim.clock.after(fault.length_s, resume)


def _scancel(sim: Sim, fault: Fault) -> None:
    job = sim.live_job()
    if job is not None and sim.slurm.answers:
        if (job.batch is not None and job.batch.is_finished) or _is_left_by_its_standby(sim, job):
            sim.cancelled_late = True   # the run has gone on (seed 70002120), or sees the cancel in squeue (87003100)
        else:
            sim.a_person_says("scancel")
        sim.slurm.cancel(job, "person")


def _is_left_by_its_standby(sim: Sim, job: Job) -> bool:
    """Its standby leads, has given the run to the next job, and is about to cancel this one itself: nobody can tell
    whose cancel it was (seed 94035939).
    """
    events = journal.read(sim.run_dir).events
    return is_explained_handover(events, job.id) and fold(events).leader not in (None, job.batch_host)


def _scancel_successor(sim: Sim, fault: Fault) -> None:
    pending = [job for job in sim.slurm.jobs.values() if job.state == "PENDING"]
    if sim.live_job() is not None and pending and sim.slurm.answers:
        sim.a_person_says("scancel_successor")
        for job in pending:   # two, where a leader died with its sbatch on the way: one of them is no wish for an end
            sim.slurm.cancel(job, "person")


_TABLE: dict[str, Callable[[Sim, Fault], None]] = {
    "rank_dies": _rank_dies, "gpu_dies": _gpu_dies, "all_ranks_fail": _all_ranks_fail,
    "truncate": _truncate, "corrupt": _corrupt, "forgets": _forgets,
    "leader_dies": _leader_dies, "leader_pauses": _leader_pauses, "leader_dies_at_call": _leader_dies_at_call,
    "worker_crashes": lambda sim, fault: _crash(sim, _worker(sim, fault.x), fault),
    "worker_silent": lambda sim, fault: _silence(sim, _worker(sim, fault.x), fault),
    "batch_crashes": lambda sim, fault: _crash(sim, _batch(sim), fault),
    "batch_silent": lambda sim, fault: _silence(sim, _batch(sim), fault),
    "worker_cut": lambda sim, fault: _cut(sim, _worker(sim, fault.x), fault),
    "batch_cut": lambda sim, fault: _cut(sim, _batch(sim), fault),
    "one_way_cut": _one_way_cut, "pair_cut": _pair_cut,
    "freeze": _freeze, "freeze_one": _freeze_one, "refuses": _refuses,
    "unreadable": _unreadable, "loses_links": _loses_links, "wall_jump": _wall_jump,
    "slurm_hung": _slurm_hung, "slurm_gone": _slurm_gone, "manners": _manners, "preempt": _preempt,
    "kill": _touch("kill"), "kill-now": _touch("kill-now"),
    "checkpoint": _touch("checkpoint"), "release": _touch_kept("release"),
    "extend": _touch_kept("extend"), "hold": _hold,
    "removed": _removed, "busy": _busy, "away": _freeze, "lies_links": _lies_links, "flaky": _flaky,
    "scancel": _scancel, "scancel_successor": _scancel_successor, "step_ended": _step_ended,
}
