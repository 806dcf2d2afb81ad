"""A task: the guard on its node with the rank below it. The fence, its connection and what it reads are the real ones
(node/guard); processes, the kernel's timer, sockets and the folder are simulated.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from safelaunch.node.guard import fence
from safelaunch.node.guard.fence import TaskFence
from safelaunch.node.guard.main import LAST_WORDS_S, SWITCH_MARGIN_S, TOO_LATE
from safelaunch.node.guard.record import PROBE_DEADLINE_S, UNREADABLE, read, tell
from tests.simulation.hosts import Host
from tests.simulation.link import SimLink
from tests.simulation.net import Socket

if TYPE_CHECKING:
    from safelaunch.node.guard.fence import Action, RecordState
    from tests.simulation.clock import Timer
    from tests.simulation.training import Attempt

READ_S = 0.01   # a look at a folder that answers


class Task:
    """One task of an attempt. `rank`: new | loading | training | dead; `guard_alive` until it has said its last."""

    def __init__(self, attempt: Attempt, host: Host, index: int) -> None:
        self.attempt, self.host, self.index, self.sim = attempt, host, index, attempt.sim
        self.rank = "new"
        self.code = 0
        self.guard_alive = False
        self._is_signalled = False      # the rank was sent the signal: a guard sends it once
        self.is_blocked = False         # the rank sleeps in D state: no signal ends it before the thaw
        self.is_held = False            # stopped by its guard, which looks first
        self._killed: tuple[int, int | None] | None = None
        self._deaf = False              # a TERM was sent already
        self._lease_s = float(attempt.env.get("SAFELAUNCH_LEASE_S", "10"))
        self._record = attempt.env["SAFELAUNCH_RECORD"]
        self._switch_n = 0
        self._hung = False              # a look of its sleeps on a frozen folder
        self._late: list[RecordState | None] = []   # looks that ended while the host stood still; None: reads now
        self._timer: Timer | None = None
        self._due_t = 0.0
        self.looked_after_s = 0.0       # of silence

    # --- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """slurmstepd starts the guard, and the guard its rank."""
        if self.rank == "new" and self.host.is_stopped and not self._deaf:
            self.sim.clock.after(0.5, self.start)
            return
        if self.rank != "new" or not self.host.is_running or self._deaf:
            return
        if not self.host.mount.is_frozen and fence.is_too_late(self._read(True)):
            self.sim.trace(self.host.name, f"guard {self.attempt.number}: its attempt is over already")
            self.attempt.task_ended(self, TOO_LATE)
            return
        env, now_s = self.attempt.env, self._now_s()
        self.guard_alive, self.rank, self.attempt.has_started = True, "loading", True
        self.fence = TaskFence(now_s, self._lease_s, True, True, fence.ORPHAN_S + fence.ORPHAN_STAGGER_S * self.index)
        self.link = SimLink(self._knock, self._now_s, env["SAFELAUNCH_CONTROL"], self.attempt.host.name,
                            env["SAFELAUNCH_TOKEN"],
                            {"node": self.host.name, "task": self.index, "attempt": self.attempt.number})
        self.host.living.append(self)
        self.sim.writes(self)
        self._turn()
        self.sim.clock.after(self.sim.scenario.load_s * self.sim.rng.uniform(0.8, 1.2), self._loaded)

    def _now_s(self) -> float:
        return self.sim.clock.t + self.host.mono_offset_s

    def _loaded(self) -> None:
        if self.rank != "loading":
            return
        if not self.host.is_running or self.host.mount.is_frozen:
            self.sim.clock.after(1.0, self._loaded)
            return
        self.rank = "training"
        self.sim.load(self)
        self.attempt.update()

    @property
    def is_training(self) -> bool:
        """The rank steps, as far as this node is concerned."""
        return (self.rank == "training" and self.host.is_running and not self.is_held and not self.is_blocked
                and self._killed is None)

    @property
    def is_writing(self) -> bool:
        """The rank can write at this instant."""
        is_alive = self.rank in ("loading", "training") and self.host.is_running
        return is_alive and not self.is_held and not self.is_blocked

    @property
    def is_doomed(self) -> bool:
        """The rank sleeps in D state and was killed: it never runs again."""
        return self.is_blocked and self._killed is not None

    def rank_ends(self, code: int, signal: int | None) -> None:
        """The rank ends, or will as soon as it wakes up from D state."""
        if self.rank in ("new", "dead"):
            return
        if self.is_blocked:
            self._killed = self._killed or (code, signal)
            return
        self.rank, self.code = "dead", code
        self._leave_host()
        self.sim.writes(self)
        self.attempt.update()
        if self.guard_alive:
            self.sim.clock.after(self.sim.rng.uniform(0.01, 0.06), lambda: self._reap(code, signal))
        else:
            self.attempt.task_ended(self, code)

    def unblock(self) -> None:
        """The folder has thawed."""
        if self.is_blocked:
            self.is_blocked = False
            if self._killed is not None:
                self.rank_ends(*self._killed)

    def _reap(self, code: int, signal: int | None) -> None:
        if not self.guard_alive:
            return
        if not self.host.is_running:
            self.sim.clock.after(1.0, lambda: self._reap(code, signal))
            return
        self.link.say({"ev": "exited", "code": code, "signal": signal})
        self._carry_out(self.fence.step(self._now_s(), left=False))
        self.link.say({"ev": "gone", "code": code})
        self.sim.clock.after(0.03 if self.link.greeted else LAST_WORDS_S, self._leave)

    def _leave(self) -> None:
        if not self.guard_alive:
            return
        if not self.host.is_running or self.fence.stays(self._now_s(), self.link.answered):
            self._turn()
            self.sim.clock.after(fence.TICK_S, self._leave)
        else:
            self.guard_dies()
            self.attempt.task_ended(self, self.code)

    def guard_dies(self) -> None:
        """The guard is gone; its connection says so, where the host still can."""
        self.guard_alive = False
        self._leave_host()
        self.link.close()

    def _leave_host(self) -> None:
        """Nothing of it is left there; a rank in D state stays, and goes with its host."""
        if not self.guard_alive and self.rank == "dead" and self in self.host.living:
            self.host.living.remove(self)

    # --- the host ---------------------------------------------------------------------------------------------------

    def stopped(self) -> None:
        """The node stands still; its kernel's timer does not."""
        if self.guard_alive:   # whose last turn was a moment ago
            self._carry_out(self.fence.step(self._now_s()))
        self.sim.writes(self)
        self.attempt.update()
        self._switch_n += 1
        number = self._switch_n
        self.sim.clock.after(self._lease_s + SWITCH_MARGIN_S, lambda: self._throw(number))

    def _throw(self, number: int) -> None:
        """The switch: SIGKILL for a guard that has not run, and for its ranks with it."""
        if number == self._switch_n and self.host.is_stopped and self.guard_alive:
            self.guard_dies()
            self.rank_ends(137, 9)

    def resumed(self, gap_s: float) -> None:
        """The node goes on: a guard that finds it was long asleep holds its ranks until it has looked."""
        self._switch_n += 1
        late, self._late = self._late, []
        if self.guard_alive and not late:
            self._turn()
        for seen in late if self.guard_alive else ():
            self._turn(seen or self._read(True))
        self.sim.writes(self)
        self.attempt.update()

    def died(self) -> None:
        """Power loss."""
        self.guard_alive = False
        self.rank = "dead"
        self.sim.writes(self)
        self.attempt.update()

    # --- orders -----------------------------------------------------------------------------------------------------

    def slurm_ends(self, kill_wait_s: float) -> None:
        """TERM to every process of the task, KILL later; a guard stays for the first, and goes with the second."""
        if not self.sim.slurm.reaches(self.host):
            self.sim.clock.after(5.0, lambda: self.slurm_ends(kill_wait_s))
            return
        if self.rank == "new":
            self._deaf = True
            self.attempt.task_ended(self, 1)   # srun: Job step aborted
            return
        self.fence.is_over = True
        self.term()
        self.sim.clock.after(kill_wait_s, self.slurm_kills)

    def slurm_kills(self) -> None:
        """KILL to all of it."""
        if not self.sim.slurm.reaches(self.host):
            self.sim.clock.after(5.0, self.slurm_kills)
            return
        was_alive = self.guard_alive
        if was_alive:
            self.guard_dies()
        if self.rank not in ("dead", "new"):
            self.rank_ends(137, 9)
        elif was_alive:
            self.attempt.task_ended(self, self.code)

    def term(self) -> None:
        """TERM to the rank."""
        if self._deaf or self.rank not in ("loading", "training"):
            return
        self._deaf = True
        if not self.sim.scenario.ignores_term:
            self.sim.clock.after(self.sim.rng.uniform(0.02, 1.5), lambda: self._end_if_running(143, 15))

    def _end_if_running(self, code: int, signal: int | None) -> None:
        if self.rank == "dead":
            return
        if not self.host.is_running:
            self.sim.clock.after(1.0, lambda: self._end_if_running(code, signal))
            return
        self.rank_ends(code, signal)

    def _signal(self) -> None:
        handles = self.sim.scenario.handles_signal and self.rank == "training"
        self.link.say({"ev": "signalled", "reached": [f"python[{self.index}]"] if handles else []})
        if handles and self.index == 0 and not self._is_signalled:
            self.attempt.save_now(self)
        self._is_signalled = self._is_signalled or handles

    # --- the guard's turns ------------------------------------------------------------------------------------------

    def _turn(self, seen: RecordState | None = None) -> None:
        """As the real one's: main.TaskGuard._turn."""
        if not self.guard_alive or not self.host.is_running:
            return
        now_s = self._now_s()
        self._carry_out(self.fence.step(now_s, record=seen))
        self._carry_out(self.fence.step(now_s, self.link.messages(now_s)))
        self._wait()

    def _wait(self) -> None:
        """Until something is due: the real one looks four times a second."""
        due_s = [max(self.fence.heard + self.fence.look_s, self.fence.looked + fence.RECORD_CHECK_S)]
        if self.fence.is_gone:   # _leave turns
            return
        if self.fence.is_looking:
            due_s = []
        if self.fence.kill_at is not None:
            due_s.append(self.fence.kill_at)
        if self.link.sock is None:
            due_s.append(self.link.try_at)
        if not due_s:
            return
        due_t = max(self.sim.clock.t, min(due_s) - self.host.mono_offset_s)
        if self._timer is None or due_t < self._due_t:
            if self._timer is not None:
                self._timer.cancel()
            self._due_t = due_t
            self._timer = self.sim.clock.at(due_t + self.sim.rng.uniform(0.001, fence.TICK_S), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._turn()

    def _carry_out(self, todo: list[Action]) -> None:
        for verb, what in todo:
            if verb == fence.SAY:
                self.link.say(what)
            elif verb in (fence.HOLD, fence.LET_GO):
                self.is_held = verb == fence.HOLD and self.rank in ("loading", "training")
                self.sim.writes(self)
                self.attempt.update()
            elif verb == fence.LOOK:
                self._look(what)
            elif verb == fence.MOVE:
                self.link.move(what)
            elif verb == fence.SIGNAL:
                self._signal()
            elif verb == fence.TERM:
                self.term()
            elif verb == fence.KILL:
                if what:
                    self.sim.trace(self.host.name, f"guard {self.attempt.number}: {what}")
                    self.sim.guard_kills(self, what)
                self.is_held = False
                self.rank_ends(137, 9)
            elif verb == fence.CANCEL:
                self.sim.trace(self.host.name, f"guard {self.attempt.number}: {what}: cancels job {self.attempt.job}")
                self.sim.guard_cancels(self.host, self.attempt.job)

    # --- looks at the folder ----------------------------------------------------------------------------------------

    def _look(self, afresh: bool) -> None:
        self.looked_after_s = self._now_s() - self.fence.heard
        mount = self.host.mount
        if self._hung:
            self.sim.clock.after(self.sim.rng.uniform(0.0, fence.TICK_S), lambda: self._seen(read(UNREADABLE)))
        elif mount.is_frozen:
            self._hung = True
            mount.when_thawed(lambda: setattr(self, "_hung", False))
            self.sim.clock.after(PROBE_DEADLINE_S, lambda: self._seen(read(UNREADABLE)))
        else:
            early = self._read(afresh) if self.sim.rng.random() < 0.5 else None
            self.sim.clock.after(mount.delay_s() + READ_S, lambda: self._seen(early or self._read(afresh)))

    def _seen(self, seen: RecordState) -> None:
        if self.host.is_stopped:
            self._late.append(seen if self.sim.rng.random() < 0.5 else None)
        else:
            self._turn(seen)

    def _read(self, afresh: bool) -> RecordState:
        mount = self.host.mount
        if mount.unreadable:
            return read(UNREADABLE)
        if afresh:
            mount.client.refresh(Path(self._record).parent)   # node.fresh
        with mount.client.reading():
            return read(b"".join(tell(self._record, False)))

    # --- the network ------------------------------------------------------------------------------------------------

    def _knock(self, address: tuple[str, int]) -> Socket:
        sock = Socket(self.sim.net, self.host)
        sock.on_data = self._turn
        sock.connect(lambda: (self.sim.host_at(address[0]), address[1]))
        return sock
