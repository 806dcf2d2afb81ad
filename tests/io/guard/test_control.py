"""The leader's side of the guards, over real sockets on loopback: who is let in, what counts, and what does no harm."""

from __future__ import annotations

import contextlib
import json
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from safelaunch.base.timing import MANY_PING_S, OWES_S
from safelaunch.guard.io import control
from safelaunch.guard.io.control import STANDBY_TASK, ControlServer
from safelaunch.node.guard.protocol import MAX_GREETING, MAX_LINE, Session, mac

TOKEN = "a" * 64
DEADLINE_S = 60.0
PING_S = 0.2


@dataclass
class Leader:
    """A control server and the loop that serves it."""

    selector: selectors.BaseSelector
    server: ControlServer
    reports: list[tuple[str, int, int | None, bool]] = field(default_factory=list)
    ahead_s: float = 0.0   # how far the server's clock is set forward
    ping_s: float = PING_S

    def serve_until(self, is_so: Callable[[], bool], why: str) -> None:
        until_s = time.monotonic() + DEADLINE_S
        while not is_so():
            assert time.monotonic() < until_s, f"waited {DEADLINE_S} s in vain: {why}"
            self.serve_once(0.01)

    def serve_once(self, timeout_s: float = 0.0) -> None:
        ready = self.selector.select(timeout_s)
        now_s = time.monotonic() + self.ahead_s
        for key, _ in ready:
            key.data(now_s)
        self.server.tick(now_s, self.ping_s)

    @property
    def connected(self) -> set[tuple[str, int]]:
        return {key for key, guard in self.server.guards.items() if guard.connection is not None}


@pytest.fixture
def leader(monkeypatch: pytest.MonkeyPatch) -> Iterator[Leader]:
    monkeypatch.setattr(control, "GREETING_S", 3600.0)   # a test that has no turn for some seconds is no stranger
    with contextlib.closing(selectors.DefaultSelector()) as selector:
        server = ControlServer(selector, TOKEN)
        made = Leader(selector, server)
        server.on_report = lambda guard: made.reports.append((guard.node, guard.task, guard.code, guard.gone))
        yield made
        made.server.close()


class Caller:
    """A guard's end of the connection, made of bytes, so that it can also say what no guard says."""

    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        self.sock = socket.create_connection(("127.0.0.1", leader.server.port), timeout=DEADLINE_S)
        self.sock.setblocking(False)
        self.heard = b""
        self.closed = False
        self.nonces = ""
        self.session: Session | None = None

    def send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self.sock.sendall(data)

    def say(self, **message: Any) -> None:
        text = json.dumps(message).encode()
        self.send(text + b"\n" if self.session is None else self.session.seal(text))

    def listen(self) -> None:
        try:
            while not self.closed:
                data = self.sock.recv(65536)
                self.heard += data
                self.closed = not data
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What the leader has said so far, its two lines of greeting first."""
        self.listen()
        first, sealed = self.heard.split(b"\n")[:-1][:2], self.heard.split(b"\n")[:-1][2:]
        session = Session(TOKEN.encode(), self.nonces, is_leader=False)   # from the first one on each time
        texts = [session.unseal(line) for line in sealed]
        assert None not in texts, self.heard
        return [json.loads(text) for text in (*first, *texts) if text is not None]

    def wait_for_lines(self, count: int) -> list[dict[str, Any]]:
        self.leader.serve_until(lambda: len(self.lines) >= count, f"{count} lines; got {self.heard!r}")
        return self.lines

    def wait_until_closed(self) -> None:
        def is_closed() -> bool:
            self.listen()
            return self.closed

        self.leader.serve_until(is_closed, "the leader to close the connection")

    def hello(self, node: str = "n0", task: Any = 0, attempt: Any = 1, token: str = TOKEN, role: str = "guard",
              **changes: Any) -> None:
        """Greet as a guard does. `proved`: the number of tasks that the proof covers."""
        self.nonces = "c" * 32 + self.wait_for_lines(1)[0]["nonce"]
        proof = mac(token.encode(), role, f"{self.nonces}{node}|{task}|{attempt}|{changes.get('proved')}")
        honest = {"node": node, "task": task, "attempt": attempt, "role": role, "nonce": self.nonces, "mac": proof}
        self.say(**{**honest, **{name: value for name, value in changes.items() if name != "proved"}})


def greeted(leader: Leader, node: str = "n0", task: int = 0, attempt: int = 1, role: str = "guard") -> Caller:
    """A guard that has been let in."""
    caller = Caller(leader)
    caller.hello(node, task, attempt, role=role)
    caller.wait_for_lines(2)
    caller.session = Session(TOKEN.encode(), caller.nonces, is_leader=False)
    return caller


def test_a_guard_that_knows_the_token_is_let_in_and_hears_that_the_leader_knows_it_too(leader: Leader) -> None:
    caller = Caller(leader)
    caller.hello()
    answer = caller.wait_for_lines(2)[1]
    assert answer == {"mac": mac(TOKEN.encode(), "leader", caller.nonces)}
    assert leader.connected == {("n0", 0)}


@pytest.mark.parametrize(
    "changes",
    [
        {"token": "b" * 64},
        *({"token": "a" * length} for length in (0, 1, 63, 65, 1 << 20)),
        *({"mac": "f" * length} for length in (1, 63, 65, 1900)),
        {"mac": ""},
        {"mac": None},
        {"mac": "\ud800"},
        {"mac": "ü" * 64},
        {"nonce": "c" * 64},
        {"nonce": "\udfff"},
        {"nonce": ""},
        {"node": ["n0"]},
        {"task": "0"},
        {"attempt": None},
        {"node": "n1", "mac": "x"},
        {"tasks": 1, "proved": 2},
        {"tasks": 1},
        {"tasks": -1, "proved": -1},
    ],
    ids=["another run's token", *(f"a token of {length}" for length in (0, 1, 63, 65, 1 << 20)),
         *(f"a proof of {length}" for length in (1, 63, 65, 1900)),
         "no proof", "null as proof", "half a surrogate as proof", "umlauts as proof",
         "another connection's nonce", "half a surrogate as nonce", "no nonce", "a node that is a list",
         "a task that is a text", "no attempt", "another node's name",
         "fewer tasks than proved", "tasks without a proof", "less than no task"],
)
def test_who_does_not_prove_itself_is_hung_up_on(leader: Leader, changes: dict[str, Any]) -> None:
    caller = Caller(leader)
    caller.hello(**changes)
    caller.wait_until_closed()
    assert leader.server.guards == {}
    assert leader.reports == []


def test_a_proof_cannot_be_played_back_on_another_connection(leader: Leader) -> None:
    first = greeted(leader)
    second = Caller(leader)
    second.wait_for_lines(1)
    second.say(node="n0", task=0, attempt=1, role="guard", nonce=first.nonces,
               mac=mac(TOKEN.encode(), "guard", f"{first.nonces}n0|0|1|None"))
    second.wait_until_closed()
    assert leader.connected == {("n0", 0)}


def test_the_leaders_own_proof_is_none_of_a_guards(leader: Leader) -> None:
    caller = Caller(leader)
    nonce = "c" * 32 + caller.wait_for_lines(1)[0]["nonce"]
    caller.say(node="n0", task=0, attempt=1, role="guard", nonce=nonce,
               mac=mac(TOKEN.encode(), "leader", f"{nonce}n0|0|1|None"))
    caller.wait_until_closed()
    assert leader.server.guards == {}


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) + b"\n",
        b"\0" * 4096 + b"\n",
        b"[" * 2000 + b"\n",
        b"1" * 2000 + b"\n",
        b'"text"\n',
        b"null\n",
        b"\n",
        b"x" * (MAX_GREETING + 1),
        b'{"node":"n0","task":0,"attempt":1,"mac":"","nonce":"' + b"\\ud800" * 300 + b'"}\n',
    ],
    ids=["HTTP", "TLS", "zero bytes", "2,000 brackets", "2,000 digits", "a text", "null", "an empty line",
         "a line without an end", "300 half surrogates"],
)
def test_garbage_on_the_port_does_no_harm(leader: Leader, garbage: bytes) -> None:
    good = greeted(leader)
    stranger = Caller(leader)
    stranger.send(garbage)
    stranger.wait_until_closed()
    good.say(ev="exited", code=3, signal=None)
    leader.serve_until(lambda: leader.server.guards["n0", 0].code == 3, "the guard to be heard all the same")


def test_a_stranger_that_says_nothing_is_hung_up_on_in_time(leader: Leader) -> None:
    silent, good = Caller(leader), greeted(leader)
    silent.wait_for_lines(1)
    leader.ahead_s = control.GREETING_S + 1
    silent.wait_until_closed()
    assert leader.connected == {("n0", 0)}
    assert not good.closed


def test_words_before_the_greeting_count_for_nothing(leader: Leader) -> None:
    caller = Caller(leader)
    caller.wait_for_lines(1)
    caller.say(ev="gone", code=0)
    caller.wait_until_closed()
    assert leader.reports == []


def test_a_message_may_come_in_pieces(leader: Leader) -> None:
    caller = greeted(leader)
    assert caller.session is not None
    for byte in (caller.session.seal(b'{"ev":"exited","code":7,"signal":null}')
                 + caller.session.seal(b'{"ev":"gone","code":7}')):
        caller.send(bytes([byte]))
        leader.serve_once()
    leader.serve_until(lambda: leader.server.guards["n0", 0].gone, "the last piece to be heard")
    assert leader.server.guards["n0", 0].code == 7


def test_the_first_exit_code_stays(leader: Leader) -> None:
    caller = greeted(leader)
    caller.say(ev="exited", code=1, signal=None)
    caller.say(ev="exited", code=0, signal=None)
    caller.say(ev="gone", code=0)
    leader.serve_until(lambda: leader.server.guards["n0", 0].gone, "the last word")
    assert leader.server.guards["n0", 0].code == 1


def test_what_the_kernel_of_a_node_said_comes_with_an_exit(leader: Leader) -> None:
    greeted(leader).say(ev="exited", code=1, signal=None, kernel=[[5.0, "NVRM: Xid"], [6, "x" * 400]])
    leader.serve_until(lambda: leader.server.guards["n0", 0].code is not None, "the exit")
    assert leader.server.kernel_lines(["n0", "n1"]) == {"n0": ((5.0, "NVRM: Xid"), (6.0, "x" * 400))}


def test_every_guard_is_told_and_pinged(leader: Leader) -> None:
    callers = [greeted(leader, f"n{number}") for number in range(3)]
    assert leader.server.tell({"do": "end", "grace_s": 5.0}, time.monotonic()) == 3
    for caller in callers:
        leader.serve_until(lambda c=caller: {"do": "ping"} in c.lines, "a ping")  # type: ignore[misc]
        assert {"do": "end", "grace_s": 5.0} in caller.lines


def stands_by(leader: Leader) -> Caller:
    """A standby that has been let in."""
    return greeted(leader, "n1", STANDBY_TASK, 0, "standby")


def test_standby_is_pinged_each_second_however_seldom_the_guards_are(leader: Leader) -> None:
    leader.ping_s = 100.0
    guard, standby = greeted(leader), stands_by(leader)
    for ahead_s in (1.1, 2.2, 3.3):
        leader.server.tick(time.monotonic() + ahead_s, 100.0)
    assert [line["do"] for line in standby.wait_for_lines(5)[2:]] == ["ping"] * 3
    assert {"do": "ping"} not in guard.lines


def test_answer_of_a_standby_proves_no_more_than_its_question_could(leader: Leader) -> None:
    begun_s = time.monotonic()
    noted: list[bool] = []
    leader.server.on_standby = lambda: noted.append("n1" in leader.server.standbys)
    standby = stands_by(leader)
    known = leader.server.standbys["n1"]
    assert noted == [True] and begun_s <= known.sure_s <= time.monotonic()
    asked_s = known.sure_s + 0.001
    for said in (asked_s, asked_s - 5.0, time.monotonic() + 1e6, None):
        standby.say(ev="pong", s=said)
    standby.say(ev="signalled", reached=["last"])
    leader.serve_until(lambda: bool(leader.server.signalled), "the last word")
    assert known.sure_s == asked_s


def test_standby_is_told_no_counter_before_the_leader_has_shown_a_pulse(leader: Leader) -> None:
    standby = stands_by(leader)
    leader.server.tick(time.monotonic() + 1.1, 100.0)
    leader.server.show_heartbeat(2_000_001, time.monotonic())
    assert [line["count"] for line in standby.wait_for_lines(4)[2:]] == [None, 2_000_001]


def test_guard_that_asks_whether_somebody_lives_is_answered_at_once_with_its_own_question(leader: Leader) -> None:
    caller = greeted(leader)
    before_s = time.monotonic()
    caller.say(ev="pong", t=12.5)
    assert caller.wait_for_lines(3)[2] == {"do": "ping", "t": 12.5}
    assert leader.server.guards["n0", 0].pinged_s >= before_s, "its lease may begin anew"


@pytest.mark.parametrize("ping_s", [PING_S, MANY_PING_S])
def test_a_silent_guard_gets_no_further_pings_until_it_answers(leader: Leader, ping_s: float) -> None:
    """They would begin its lease anew, which the fence of a silent node waits for."""
    caller, guard = greeted(leader), leader.server.guards["n0", 0]
    heard_s = guard.heard_s
    for tick in range(200):
        leader.server.tick(heard_s + 0.1 * tick, ping_s)
    assert heard_s < guard.pinged_s <= heard_s + OWES_S + 0.2
    withheld_s = guard.pinged_s
    leader.server.tell({"do": "signal", "signal": 10}, heard_s + 20.0)
    assert guard.pinged_s == heard_s + 20.0, "whatever it hears begins its lease anew"
    leader.ahead_s = 21.0
    caller.say(ev="pong")
    leader.serve_until(lambda: guard.heard_s > withheld_s, "the answer")
    leader.server.tick(guard.heard_s + 4.0, ping_s)
    assert guard.pinged_s == guard.heard_s + 4.0, "pinged again"


def test_a_guard_that_was_told_something_owes_no_answer_to_it(leader: Leader) -> None:
    """It would never be pinged again, and be called lost."""
    greeted(leader)
    guard = leader.server.guards["n0", 0]
    leader.server.tell({"do": "signal", "signal": 10}, guard.heard_s + 0.5)
    leader.server.tick(guard.heard_s + 0.5 + MANY_PING_S, MANY_PING_S)
    assert guard.asked_s == guard.heard_s + 0.5 + MANY_PING_S


def test_processes_that_took_a_signal_are_named_with_their_node(leader: Leader) -> None:
    greeted(leader, "n7").say(ev="signalled", reached=["python[12]", "python[13]"])
    leader.serve_until(lambda: bool(leader.server.signalled), "the names")
    assert leader.server.signalled == ["n7: python[12]", "n7: python[13]"]


def test_a_guard_that_hangs_up_is_known_since_when(leader: Leader) -> None:
    caller = greeted(leader)
    caller.sock.close()
    guard = leader.server.guards["n0", 0]
    leader.serve_until(lambda: guard.closed_s is not None, "the end of the connection")
    assert guard.connection is None
    assert not guard.gone


def test_a_guard_counts_as_away_only_since_the_crowd_at_the_door_has_gone(
        leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "AT_ONCE", 2)
    caller, guard = greeted(leader), leader.server.guards["n0", 0]
    assert leader.server.closed_for_s(guard, 5.0) is None
    caller.sock.close()
    leader.serve_until(lambda: guard.closed_s is not None, "the end of the connection")
    closed_s = guard.closed_s
    assert closed_s is not None
    leader.ahead_s = 7.0
    crowd = [Caller(leader) for _ in range(3)]
    leader.serve_until(lambda: leader.server.crowded_s > closed_s, "a turn in which more callers wait")
    crowded_s = leader.server.crowded_s
    assert leader.server.closed_for_s(guard, crowded_s + 1.5) == pytest.approx(1.5)
    leader.server.crowded_s = closed_s + 1000.0   # a flood excuses nobody for good
    assert leader.server.closed_for_s(guard, closed_s + 40.0) == pytest.approx(40.0 - control.CROWD_MOST_S)
    assert len(crowd) == 3


def test_a_guard_that_calls_again_takes_the_place_of_its_old_connection(leader: Leader) -> None:
    old = greeted(leader)
    new = greeted(leader)
    old.wait_until_closed()
    guard = leader.server.guards["n0", 0]
    assert guard.connection is not None
    assert guard.closed_s is None
    new.say(ev="exited", code=4, signal=None)
    leader.serve_until(lambda: guard.code == 4, "the new connection to be heard")


def test_what_was_said_to_a_node_before_it_was_hung_up_on_is_not_heard_later(leader: Leader) -> None:
    """It waited in the kernel for a cable to be mended, and began a lease anew."""
    caller = greeted(leader)
    guard = leader.server.guards["n0", 0]
    assert guard.connection is not None
    while not guard.connection.outbox:   # until the kernel takes no more
        leader.server.tell({"do": "ping", "filler": "x" * 10_000}, time.monotonic())
    leader.server.hang_up("n0", time.monotonic())
    caller.sock.setblocking(True)
    with pytest.raises(ConnectionResetError):
        while caller.sock.recv(1 << 20):
            pass


def test_a_node_that_was_hung_up_on_is_never_spoken_to_again(leader: Leader) -> None:
    caller, other = greeted(leader, "n0"), greeted(leader, "n1")
    leader.server.hang_up("n0", time.monotonic())
    caller.wait_until_closed()
    heard_s = leader.server.guards["n0", 0].pinged_s
    again = Caller(leader)
    again.hello("n0")
    again.wait_until_closed()
    assert len(again.lines) == 1, "the nonce and nothing that a lease could live on"
    assert leader.server.guards["n0", 0].pinged_s == heard_s
    assert leader.connected == {("n1", 0)}
    assert not other.closed


def test_a_guard_of_an_attempt_that_is_over_is_not_let_in(leader: Leader) -> None:
    old = greeted(leader, "n0", attempt=1)
    leader.server.expect(2)
    old.wait_until_closed()
    assert leader.server.guards == {}
    woken = Caller(leader)
    woken.hello("n0", attempt=1)
    woken.wait_until_closed()
    assert leader.server.guards == {}
    greeted(leader, "n0", attempt=2)
    assert leader.server.guards["n0", 0].attempt == 2


def test_a_late_guard_of_the_attempt_before_does_not_displace_the_new_one(leader: Leader) -> None:
    greeted(leader, "n0", attempt=2)
    late = Caller(leader)
    late.hello("n0", attempt=1)
    late.wait_until_closed()
    assert leader.server.guards["n0", 0].attempt == 2


def test_a_guard_that_reads_nothing_holds_nobody_up(leader: Leader) -> None:
    deaf, other = greeted(leader, "n0"), greeted(leader, "n1")
    started_s = time.monotonic()
    for _ in range(2000):
        leader.server.tell({"do": "ping", "pad": "x" * 1000}, time.monotonic())
        other.listen()
        leader.serve_once()
    assert time.monotonic() - started_s < DEADLINE_S
    connection = leader.server.guards["n0", 0].connection
    assert connection is None or len(connection.outbox) <= MAX_LINE
    other.say(ev="exited", code=0, signal=None)
    leader.serve_until(lambda: leader.server.guards["n1", 0].code == 0, "the other guard")
    assert not deaf.closed


def test_two_hundred_guards_are_let_in_at_once(leader: Leader) -> None:
    callers = [Caller(leader) for _ in range(200)]
    for number, caller in enumerate(callers):
        caller.hello(f"n{number // 8}", number % 8)
    leader.serve_until(lambda: len(leader.connected) == 200, "200 guards")
    for caller in callers:
        caller.sock.close()


def test_the_same_port_and_token_serve_the_guards_of_the_leader_before(leader: Leader) -> None:
    caller, port = greeted(leader), leader.server.port
    leader.server.close()
    caller.listen()
    leader.server = ControlServer(leader.selector, TOKEN, port)
    assert leader.server.port == port
    greeted(leader)


def test_a_port_that_somebody_else_has_taken_is_no_error(leader: Leader) -> None:
    with contextlib.closing(selectors.DefaultSelector()) as selector:
        other = ControlServer(selector, TOKEN, leader.server.port)
        assert other.port != leader.server.port
        other.close()


FLOODED = """
import resource, selectors, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
sys.path[:0] = eval(sys.argv[1])
from safelaunch.guard.io import control
control.STRANGERS_SHARE = 0.01   # no share to keep to: it is the descriptors that run out
selector = selectors.DefaultSelector()
server = control.ControlServer(selector, "a" * 64)
print(server.port, flush=True)
ended, rounds = False, 0
selector.register(sys.stdin, selectors.EVENT_READ, lambda now_s: sys.exit(0))
while True:
    for key, _ in selector.select(0.1):
        key.data(time.monotonic())
    server.tick(time.monotonic(), 1.0)
    rounds += 1
    if rounds % 10 == 0:
        print("rounds", rounds, flush=True)
"""


def test_a_flood_of_strangers_costs_neither_the_descriptors_nor_the_processor() -> None:
    argv = [sys.executable, "-c", FLOODED, repr(sys.path)]
    flooded = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    strangers: list[socket.socket] = []
    try:
        assert flooded.stdout is not None
        port = int(flooded.stdout.readline())
        for _ in range(120):
            with contextlib.suppress(OSError):
                strangers.append(socket.create_connection(("127.0.0.1", port), timeout=1))
        started_s = time.monotonic()
        for _ in range(2):
            assert flooded.stdout.readline().startswith("rounds"), "the server has died"
        assert any(map(_is_answered, strangers[-8:])), "nobody is let in any more"
        assert time.monotonic() - started_s < DEADLINE_S
    finally:
        for stranger in strangers:
            stranger.close()
        flooded.send_signal(signal.SIGKILL)
        flooded.communicate(timeout=DEADLINE_S)


def _is_answered(sock: socket.socket) -> bool:
    sock.settimeout(DEADLINE_S)
    try:
        return sock.recv(4096).startswith(b'{"nonce"')
    except OSError:
        return False
