"""The standby: a second supervisor on another node, which takes over when the leader's node dies.

A dead batch host under --no-kill leaves the job RUNNING without a script until its time limit (measured), and Slurm
itself notices after 440 s. The standby is connected to the leader's endpoint and answers its pings. When the connection
is silent it reads the heartbeat from the shared folder. decide.jobs.takeover decides, and a claim makes sure that only
one acts.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safelaunch.base.io import sharedfile
from safelaunch.base.io.localfolder import TOUCH_EVERY_S, touch
from safelaunch.base.io.localtime import clock
from safelaunch.base.timing import READ_EVERY_S, STALL_S, SUSPICION_S
from safelaunch.decide.jobs import takeover
from safelaunch.decide.jobs.takeover import HeartbeatOf, Signs
from safelaunch.guard.io.job import Allocation
from safelaunch.node import fresh
from safelaunch.run.heartbeat import FILE as HEARTBEAT_FILE
from safelaunch.run.heartbeat import parse as parse_heartbeat
from safelaunch.run.io import journal
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.slurm import Result
from safelaunch.supervisor.io.world import World
from safelaunch.supervisor.leader import LISTEN_S, SIGNALS
from safelaunch.supervisor.state.ports import TookOver

TICK_S = 0.5          # a ping is answered within it; a leader that leaves is noticed
READ_DEADLINE_S = 1.0


class LastHeartbeat(NamedTuple):
    """What heartbeats have said so far."""

    gen: int = 0                     # the highest generation that one was of, or that has claimed the lead since
    leader: str = ""                 # its host,
    eligible: tuple[str, ...] = ()   # hosts of standbys
    successor: str | None = None     # the next job


class Standby:
    """Watches the leader of its job; `watch` returns when there is something to do, or nothing any more."""

    def __init__(self, run_dir: Path, local: Path, job: Allocation, world: World, token: str,
                 endpoint: tuple[str, int] | None) -> None:
        self.run_dir, self.local, self.job, self.world, self.token = run_dir, local, job, world, token
        self.shared = world.share(run_dir, local / "standby", lambda: self._attend(LISTEN_S))
        self.endpoint = endpoint
        self.told = LastHeartbeat()
        self.now_s = world.now_s()
        self.signs = takeover.begin(self.now_s)
        self.line = world.call(endpoint, token, job.host) if endpoint else None   # else the heartbeat tells
        self.read_next_s = 0.0
        self.touch_next_s = self.now_s + TOUCH_EVERY_S
        self.is_over = False          # the run has ended, or has been handed over to another job
        world.on_signals(SIGNALS, self._take_signal)

    def watch(self) -> bool:
        """True when the leader is dead and this one is to lead; False when the job or the run ends."""
        while not self.is_over:
            self._attend(TICK_S)
            if self.now_s >= self.touch_next_s:
                touch(self.local)
                self.touch_next_s = self.now_s + TOUCH_EVERY_S
            if self._should_read():
                self._read_heartbeat()
            if self.is_over:
                break
            if self._check_due(takeover.is_dead):
                break
            if self._check_due(takeover.is_orphaned):
                self._end_job()
        self.shared.close()
        if self.line is not None:
            self.world.hang_up(self.line)
        return not self.is_over

    @property
    def took_over(self) -> TookOver:
        """From whom, once `watch` has said so."""
        # A heartbeat that moved while only the connection was cut: the leader was sure of itself until then.
        seen_s = 0.0 if self.signs.has_resigned else self.signs.moved_s
        others = tuple(name for name in self.told.eligible if name != self.job.host)
        return TookOver(self.told.leader or "its host", max(self.signs.heard_s, seen_s), others)

    def _attend(self, timeout_s: float) -> None:
        """Sleep until a signal comes, at most so long, and answer the leader; also while the folder is waited for."""
        before_s = self.now_s
        for key, _ in self.world.selector.select(timeout_s):
            key.data(self.world.now_s())
        self.now_s = self.world.now_s()
        if self.now_s - before_s > timeout_s + STALL_S:
            self.signs = takeover.begin(self.now_s, self.signs.is_known)   # it was this process that stood still
        for message in self.line.messages(self.now_s) if self.line is not None else ():
            self.signs = takeover.receive(self.signs, self.now_s, message.get("count"))
            if message.get("do") == "ping" and self.line is not None:
                self.line.say({"ev": "pong", "s": message.get("s")})

    def _should_read(self) -> bool:
        if self.now_s < self.read_next_s:
            return False
        suspicious = takeover.is_suspicious(self.signs, self.now_s)
        self.read_next_s = self.now_s + (READ_EVERY_S if suspicious else TICK_S)
        if suspicious or not self.told.leader:
            return True
        self.read_next_s = self.now_s + SUSPICION_S   # so that a silent connection is noticed in time
        return False

    def _read_heartbeat(self) -> None:
        """Read the heartbeat in a child: the folder may be frozen."""
        path = self.run_dir / HEARTBEAT_FILE

        def read() -> Any:
            # (simulated: test_found "a pulse that a client remembers is no witness of its leader's death")
            fresh.see(str(self.run_dir))
            return sharedfile.read_json(path, sharedfile.HEARTBEAT_BYTES)
        answer = self.shared.ask(read, READ_DEADLINE_S)
        self.now_s = self.world.now_s()
        pulse = parse_heartbeat(answer.value) if answer.is_ok else None
        if pulse is None or pulse.endpoint is None or pulse.eligible is None:
            return   # unread, or of another version
        count, every_s, is_listed = pulse.count, pulse.every_s, self.job.host in pulse.eligible
        whose = takeover.whose(pulse, self.job.host, self.job.id, gen=self.told.gen, leader=self.told.leader,
                               endpoint=self.endpoint)
        if whose is HeartbeatOf.EARLIER:   # the folder answers, and shows nothing new
            self.signs = takeover.read(self.signs, self.now_s, 0)
            return
        self.told = self.told._replace(successor=pulse.successor)
        if whose is HeartbeatOf.OWN_HOST:
            self.signs = takeover.read(self.signs, self.now_s, count, every_s, is_listed=False)
            return
        self.told = self.told._replace(gen=pulse.gen)
        if whose is HeartbeatOf.OVER:
            self.is_over = True
            return
        self.told = self.told._replace(eligible=pulse.eligible)
        if whose is HeartbeatOf.OTHER:
            self._follow(pulse.host, pulse.endpoint, count, every_s, is_listed)
            return
        self.told = self.told._replace(leader=pulse.host)
        self.signs = takeover.read(self.signs, self.now_s, count, every_s, pulse.alone, is_listed)

    def _check_due(self, is_gone: Callable[[Signs, float], bool]) -> bool:
        """Whether the leader is gone, also once the folder has been asked: it may have been heard meanwhile."""
        heard_s = self.signs.heard_s
        return is_gone(self.signs, self.now_s) and self._check_still_due() and (
            self.is_over or self.signs.heard_s == heard_s)

    def _check_still_due(self) -> bool:
        """Whether nobody else leads the run by now: a node that was cut off may have missed this job's end. The
        heartbeat of a leader in this one is waited for: that of the one before may have replaced it (simulated:
        test_found "a standby leaves the run to the new leader whose pulse the old one has overwritten").
        """
        def look() -> tuple[str, int] | None:
            fresh.see(f"{self.run_dir}/claims")
            return journal.newest_lead(self.run_dir)
        answer = self.shared.ask(look, READ_DEADLINE_S)
        if not answer.is_ok or answer.value is None:
            return answer.is_ok
        job, gen = answer.value
        self.is_over = job != self.job.id
        if gen <= self.told.gen:
            return True
        self.told, self.signs = self.told._replace(gen=gen), takeover.wait_for_heartbeat(self.signs, self.now_s)
        return self.is_over

    def _end_job(self) -> None:
        """Announce that this is no person's cancel, keep the next job from this one's silent nodes, cancel this one.

        Guards do the same, where one is left; the run goes on in its next job. Only if Slurm says that this job runs
        (simulated: test_found "a cancel of a job whose old leader wakes up long after it is final").
        """
        self.signs = takeover.begin(self.now_s, self.signs.is_known)   # if that fails, again after a while
        begun_s = self.signs.heard_s
        looked = self._ask(slurm.squeue_job(self.job.id))
        if self.signs.heard_s != begun_s or not slurm.is_running(looked, self.job.id):
            return   # or the leader was heard meanwhile
        word = f"{self.job.host} {clock(self.world.now())}\n".encode()
        if not self.shared.put(f"control/orphaned-{self.job.id}", word, READ_DEADLINE_S):
            return
        if self.told.successor is not None:
            self._ask(slurm.update_job(self.told.successor, Dependency="singleton"))
        self._ask(slurm.scancel(self.job.id))

    def _ask(self, argv: Sequence[str]) -> Result:
        """Slurm's answer; the leader's connection is served meanwhile."""
        command = self.world.command(argv, self.job.env)
        while (result := command.poll()) is None:
            self._attend(LISTEN_S)
        return result

    def _follow(self, host: str, endpoint: tuple[str, int], count: int, every_s: float, is_listed: bool) -> None:
        """Another supervisor leads: it took over, or was started elsewhere."""
        if self.line is not None:
            self.world.hang_up(self.line)
        # A supervisor that starts on that host knows this standby from its disk.
        is_known = self.signs.is_known and is_listed and host == self.told.leader
        self.told, self.endpoint = self.told._replace(leader=host), endpoint
        self.line = self.world.call(endpoint, self.token, self.job.host)
        self.signs = takeover.Signs(heard_s=self.now_s, count=count, moved_s=self.now_s, promise_s=every_s,
                                    is_known=is_known)

    def _take_signal(self, number: int, now_s: float) -> None:
        if number == signal.SIGTERM:
            self.is_over = True   # the job ends: that is the leader's matter
