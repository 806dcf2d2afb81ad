"""A task: the guard on its node, the rank below it, and their connection to the supervisor. Follows node/guard."""

from __future__ import annotations

import json
from errno import ETIMEDOUT
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safelaunch.node.guard.fence import (
    ASK_SHARE,
    LOOK_S,
    ORPHAN_READS,
    ORPHAN_S,
    ORPHAN_STAGGER_S,
    RECORD_CHECK_S,
    STAY_S,
    TICK_S,
)
from safelaunch.node.guard.link import RETRY_S
from safelaunch.node.guard.main import LAST_WORDS_S, SWITCH_MARGIN_S, TOO_LATE
from safelaunch.node.guard.protocol import Session, from_leader, introduce, is_welcome
from safelaunch.node.guard.record import PROBE_DEADLINE_S
from tests.simulation.hosts import Host
from tests.simulation.net import Socket

if TYPE_CHECKING:
    from tests.simulation.training import Attempt

PING = b'{"do":"ping"}'   # nearly all there is


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
        self._token = attempt.env["SAFELAUNCH_TOKEN"].encode()
        # The leader's port; "" is the host that srun runs on.
        name, _, port = attempt.env["SAFELAUNCH_CONTROL"].rpartition(":")
        self._first_host = name or attempt.host.name
        self._address = (self._first_host, int(port))
        self._sock: Socket | None = None
        self._session: Session | None = None
        self._greeted_ever = False
        self._nonces = ""
        self._inbox = b""
        self._unsent: list[dict[str, Any]] = []
        self._heard_t = self._proved_t = 0.0   # the last sign of life, and the last question that was answered
        self._looking = False
        self._switch_n = 0
        self._pulse: int | None = None
        self._pulse_t = 0.0
        self._pulse_reads = 0
        self._orphan_s = ORPHAN_S + ORPHAN_STAGGER_S * index
        self._answered_t = 0.0          # the last sign of life of the leader's host
        self._stays_until_t: float | None = None    # it has last words and nobody to hear them
        self._over = False
        self._checking = False

    # --- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """slurmstepd starts the guard, and the guard its rank."""
        if self.rank != "new" or not self.host.is_running or self._deaf:
            return
        if not self.host.mount.is_frozen and self._read()[0] == "ended":
            self.sim.trace(self.host.name, f"guard {self.attempt.number}: its attempt is over already")
            self.attempt.task_ended(self, TOO_LATE)
            return
        self.guard_alive, self.rank, self.attempt.has_started = True, "loading", True
        self._heard_t = self._proved_t = self._answered_t = self.sim.clock.t
        self.host.living.append(self)
        self.sim.writes(self)
        self._connect()
        self._checking = True
        self.sim.clock.after(LOOK_S + 0.1, self._check_silence)
        self.sim.clock.after(self.sim.scenario.load_s * self.sim.rng.uniform(0.8, 1.2), self._loaded)

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
        self._say({"ev": "exited", "code": code, "signal": signal}, keep=True)
        self._say({"ev": "gone", "code": code}, keep=True)
        self.sim.clock.after(0.03 if self._session is not None else LAST_WORDS_S, self._leave)

    def _leave(self) -> None:
        if self.guard_alive and self._is_unheard():
            self.sim.clock.after(TICK_S, self._leave)
            if not self._checking:
                self._checking = True
                self._check_silence()
        elif self.guard_alive:
            self.guard_dies()
            self.attempt.task_ended(self, self.code)

    def _is_unheard(self) -> bool:
        """Nobody answers where the leader was, nor does anybody else lead, nor does Slurm end the step."""
        now_t = self.sim.clock.t
        if not self._greeted_ever or self._over or now_t - self._answered_t <= LOOK_S:
            return False
        self._stays_until_t = self._stays_until_t or now_t + STAY_S
        return now_t < self._stays_until_t

    def guard_dies(self) -> None:
        """The guard is gone; its connection says so, where the host still can."""
        self.guard_alive = False
        if self in self.host.living:
            self.host.living.remove(self)
        self._drop()

    # --- the host ---------------------------------------------------------------------------------------------------

    def stopped(self) -> None:
        """The node stands still; its kernel's timer does not."""
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
        if not self.guard_alive:
            return
        if gap_s > self._lease_s / 2 and self.rank in ("loading", "training"):
            self.is_held = True
            self._look()
        self.sim.writes(self)
        self.attempt.update()
        if self._sock is not None and self._sock.is_ready():
            self._on_data()

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
            self.attempt.waits_for.discard(self)
            return
        self._over = True
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

    def _obey(self, message: dict[str, Any]) -> None:
        verb = message.get("do")
        if verb == "signal":
            handles = self.sim.scenario.handles_signal and self.rank == "training"
            self._say({"ev": "signalled", "reached": [f"python[{self.index}]"] if handles else []})
            if handles and self.index == 0 and not self._is_signalled:
                self.attempt.save_now(self)
            self._is_signalled = self._is_signalled or handles
        elif verb == "end":
            self.term()
            self.sim.clock.after(float(message.get("grace_s", 5.0)), lambda: self._end_if_running(137, 9))

    # --- the fence --------------------------------------------------------------------------------------------------

    def _check_silence(self) -> None:
        """From LOOK_S of silence on the record is looked at, each second."""
        if not self.guard_alive or (self.rank == "dead" and self._stays_until_t is None):
            self._checking = False
            return
        left_s = self._heard_t + LOOK_S - self.sim.clock.t
        if left_s <= 0:
            self._look()
            left_s = RECORD_CHECK_S
        self.sim.clock.after(left_s + self.sim.rng.uniform(0.0, TICK_S), self._check_silence)

    def _look(self) -> None:
        if self._looking or not self.guard_alive or not self.host.is_running:
            return
        self._looking = True
        is_alone = self.sim.clock.t - self._heard_t > self._lease_s
        if self.host.mount.is_frozen:
            self.sim.clock.after(PROBE_DEADLINE_S, lambda: self._judge(is_alone, "unreadable", None))
        else:
            self.sim.clock.after(self.host.mount.delay_s() + 0.01, lambda: self._judge(is_alone, *self._read()))

    def _read(self) -> tuple[str, tuple[str, int] | None]:
        if self.host.mount.unreadable:
            return "unreadable", None
        self.host.mount.client.refresh(Path(self._record).parent)   # node.fresh
        try:
            with self.host.mount.client.reading(), open(self._record, "rb") as file:
                record = json.loads(file.read())
        except FileNotFoundError:
            return "missing", None
        except (OSError, ValueError):
            return "unreadable", None
        endpoint = record.get("endpoint")
        return str(record["state"]), (str(endpoint[0]), int(endpoint[1])) if endpoint else None

    def _judge(self, is_alone: bool, state: str, endpoint: tuple[str, int] | None) -> None:
        self._looking = False
        if not self.guard_alive or not self.host.is_running:
            return
        self._watch_pulse(state)
        if endpoint and self.sim.clock.t - self._heard_t > LOOK_S:
            self._move(endpoint)
        unknown = state == "unreadable" and not self._greeted_ever
        if self.rank == "dead":
            self._over = self._over or (is_alone and state not in ("live", "missing"))
            return
        if not is_alone or state in ("live", "missing") or unknown:
            if state != "ended" and self.is_held:
                self.is_held = False
                self.sim.writes(self)
                self.attempt.update()
            return
        self.sim.trace(self.host.name, f"guard {self.attempt.number}: heard nobody for "
                                       f"{self.sim.clock.t - self._heard_t:.1f} s, record {state}: ends its ranks")
        self.is_held = False
        self.rank_ends(137, 9)

    def _watch_pulse(self, state: str) -> None:
        """End a job that nobody leads."""
        now_t = self.sim.clock.t
        try:
            with self.host.mount.client.reading():
                pulse = int(json.loads((self.sim.run_dir / "pulse.json").read_bytes())["count"])
        except (OSError, ValueError, KeyError):
            return
        if state != "live" or self.host.mount.is_frozen or self.host.mount.unreadable:
            return
        if self._stays_until_t is not None and self._pulse_t > self._heard_t and pulse != self._pulse:
            self._over = True   # somebody leads who does not hear this guard: as ever, srun tells him
        if pulse != self._pulse or now_t - self._heard_t < LOOK_S + 1.0:
            self._pulse, self._pulse_t, self._pulse_reads = pulse, now_t, 0
        self._pulse_reads += 1
        is_orphan = min(now_t - self._heard_t, now_t - self._pulse_t) > self._orphan_s
        if is_orphan and self._pulse_reads >= ORPHAN_READS:
            self._orphan_s += 600.0
            self.sim.trace(self.host.name, f"guard {self.attempt.number}: nobody leads: cancels job {self.attempt.job}")
            self.sim.guard_cancels(self.host, self.attempt.job)

    # --- the link ---------------------------------------------------------------------------------------------------

    def _move(self, endpoint: tuple[str, int]) -> None:
        address = (endpoint[0] or self._first_host, endpoint[1])
        if address != self._address:
            self._address = address
            self._drop()
            self._connect()

    def _connect(self) -> None:
        if not self.guard_alive or self._sock is not None:
            return
        if not self.host.is_running:
            self.sim.clock.after(RETRY_S, self._connect)
            return
        self._sock = sock = Socket(self.sim.net, self.host)
        sock.on_data = self._on_data
        address = self._address
        sock.connect(lambda: (self.sim.host_at(address[0]), address[1]))

    def _drop(self) -> None:
        if self._sock is not None:
            self._sock.on_data = None
            self._sock.close()
        self._sock = None
        self._session, self._nonces, self._inbox = None, "", b""

    def _on_data(self) -> None:
        sock = self._sock
        if sock is None or not self.guard_alive or not self.host.is_running:
            return
        try:
            data = sock.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError as error:
            data = b""
            is_answer = error.errno != ETIMEDOUT
        else:
            is_answer = True
        if not data:
            self._answered_t = self.sim.clock.t if is_answer else self._answered_t
            self._drop()
            self.sim.clock.after(RETRY_S, self._connect)
            return
        *lines, self._inbox = (self._inbox + data).split(b"\n")
        for line in lines:
            if self._sock is sock:
                self._take(line)

    def _take(self, line: bytes) -> None:
        if self._session is not None:
            text = self._session.unseal(line)
            said: dict[str, Any] | None = {"do": "ping"} if text == PING else from_leader(text or b"")
            assert said is not None, f"a leader says {line!r}"
            self._hear(said.get("t"))
            if said["do"] == "ping":
                self._say({"ev": "pong"})
            else:
                self._obey(said)
        elif not self._nonces:
            hello = introduce(self._token, {"node": self.host.name, "task": self.index,
                                            "attempt": self.attempt.number}, line)
            assert hello is not None, f"a leader greets with {line!r}"
            self._nonces = hello[0]
            self._send(hello[1])
        elif is_welcome(self._token, self._nonces, line):
            self._session, self._greeted_ever = Session(self._token, self._nonces, is_leader=False), True
            self._hear(None)
            for told in self._unsent:
                self._say(told)
        else:
            self._drop()
            self.sim.clock.after(RETRY_S, self._connect)

    def _hear(self, asked_t: float | None) -> None:
        """A sign of life; after a silence only as an answer to the question whether it is one."""
        now_t = self._answered_t = self.sim.clock.t
        if asked_t is not None:
            self._proved_t = max(self._proved_t, asked_t)
            self._heard_t = max(self._heard_t, self._proved_t)
            return
        if now_t - min(self._heard_t, self._proved_t) <= LOOK_S + TICK_S:
            self._heard_t = now_t
        if now_t - self._proved_t > LOOK_S * ASK_SHARE:
            self._say({"ev": "pong", "t": now_t})

    def _say(self, message: dict[str, Any], keep: bool = False) -> None:
        if keep:
            self._unsent.append(message)
        if self._session is not None:
            self._send(self._session.seal(json.dumps(message).encode()))

    def _send(self, data: bytes) -> None:
        if self._sock is not None:
            try:
                self._sock.send(data)
            except OSError:
                self._drop()
                self.sim.clock.after(RETRY_S, self._connect)
