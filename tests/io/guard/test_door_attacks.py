"""Who stands between a guard and its leader, who floods the door, and who has the token and says odd things."""

from __future__ import annotations

import json
import random
import selectors
import socket
import time
from typing import Any

import pytest

from safelaunch.guard.io.callers import Connection, Strangers
from safelaunch.guard.io.control import AT_ONCE, GREETING_S, ControlServer
from safelaunch.node.guard.fence import SAY, TaskFence
from safelaunch.node.guard.link import Link
from safelaunch.node.guard.processes import signal_handlers
from safelaunch.node.guard.protocol import MAX_GREETING, Session
from tests.doorplay import BAD, NOW_S, TOKEN, WORDS, Door, End, Line, greet, play
from tests.hostile import LONG

SEEDS = 200_000 if LONG else 2_000
GREETINGS = 3_000 if LONG else 300
DEADLINE_S = 60.0
ORDER = b'{"do": "end", "grace_s": 0}'
EXITED, GONE = {"ev": "exited", "code": 0, "signal": None}, {"ev": "gone", "code": 0}


def test_conversations_that_chance_has_harmed_make_nobody_believe_what_was_not_said() -> None:
    for seed in range(SEEDS):
        play(seed)


# --- in the middle ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", [
    ORDER + b"\n", b"0" * 32 + b" " + ORDER + b"\n", Session(b"b" * 64, "0" * 64, is_leader=True).seal(ORDER), b"\n",
], ids=["bare", "with a proof that is none", "with another run's token", "nothing"])
def test_who_has_relayed_the_greeting_cannot_order_a_guard(word: bytes) -> None:
    door, line = Door(), Line()
    greet(door, line)
    assert line.hear(word) == [] and line.sock is None


@pytest.mark.parametrize("words", [[EXITED, GONE], [GONE]], ids=["exited and gone", "gone"])
def test_who_has_relayed_the_greeting_cannot_say_that_a_task_has_gone(words: list[dict[str, Any]]) -> None:
    """Believed, that would have a second attempt launched beside living ranks."""
    door, line = Door(), Line()
    end = greet(door, line)
    told: list[str] = []
    door.on_forged = lambda guard: told.append(guard.node)
    door.hear(end, b"".join(json.dumps(word).encode() + b"\n" for word in words))
    guard = door.guards["n0", 0]
    assert (guard.code, guard.gone, guard.connection, end.is_open) == (None, False, None, False)
    assert (door.forged, told) == (1, ["n0"])
    line.close()
    again = greet(door, line)   # the guard itself calls again, and is believed
    line.say(GONE)
    door.hear(again, line.end.out)
    assert guard.gone


@pytest.mark.parametrize(("order", "accepted"), [
    ([0, 1, 2], 3), ([1, 0, 2], 0), ([0, 2, 1], 1), ([1, 2], 0), ([0, 2], 1), ([0, 0, 1, 2], 1), ([0, 1, 2, 2], 3),
], ids=["as said", "the first two swapped", "the last two swapped", "the first left out", "the second left out",
        "one twice", "the last twice"])
def test_lines_that_are_swapped_left_out_or_repeated_end_the_connection_on_both_sides(
    order: list[int], accepted: int,
) -> None:
    door, line = Door(), Line()
    end = greet(door, line)
    for number in range(3):
        line.say({"ev": "signalled", "reached": [f"python[{number}]"]})
    lines = line.end.take()
    door.hear(end, b"".join(lines[place] + b"\n" for place in order))
    assert door.signalled == [f"n0: python[{number}]" for number in range(accepted)]
    assert end.is_open == (order == [0, 1, 2])

    door, line = Door(), Line()
    end = greet(door, line)
    for number in range(1, 4):
        door.tell({"do": "signal", "signal": number}, NOW_S)
    lines = end.take()
    assert line.hear(b"".join(lines[place] + b"\n" for place in order)) == [
        {"do": "signal", "signal": number} for number in range(1, accepted + 1)]
    assert line.greeted == (order == [0, 1, 2])


def test_a_recorded_connection_played_back_is_not_let_in_nor_believed() -> None:
    door, line = Door(), Line()
    line.messages(NOW_S)
    end = door.accept()
    leaders = [end.take()]
    line.hear(leaders[0][0] + b"\n")
    guards = line.end.take()
    door.hear(end, guards[0] + b"\n")
    leaders.append(end.take())
    line.hear(leaders[1][0] + b"\n")
    line.say(GONE)
    guards += line.end.take()
    door.tell({"do": "end", "grace_s": 0.0}, NOW_S)
    leaders.append(end.take())

    reborn = Door()
    again = reborn.accept()
    reborn.hear(again, b"".join(one + b"\n" for one in guards))
    assert not reborn.guards and not again.is_open
    other = Line()
    other.messages(NOW_S)
    assert other.hear(b"".join(one + b"\n" for lines in leaders for one in lines)) == [] and not other.greeted

    second = greet(reborn, Line())   # its lines on a connection that is let in are of another key
    reborn.hear(second, guards[1] + b"\n")
    assert not reborn.guards["n0", 0].gone


def test_a_line_that_comes_back_to_its_sender_or_by_another_connection_is_no_word() -> None:
    nonces = "0" * 64
    leader, guard = (Session(b"token", nonces, is_leader) for is_leader in (True, False))
    line = leader.seal(b"{}")[:-1]
    assert leader.unseal(line) is None
    assert Session(b"token", "1" * 64, is_leader=False).unseal(line) is None
    assert Session(b"other", nonces, is_leader=False).unseal(line) is None
    assert guard.unseal(line) == b"{}" and guard.unseal(line) is None


@pytest.mark.parametrize("is_answered", [True, False], ids=["answered", "old pings, passed on one by one"])
def test_pings_are_signs_of_life_only_while_questions_are_answered(is_answered: bool) -> None:
    """Who has the leader's port could store pings and have a guard live on them when their sender is dead."""
    fence = TaskFence(0.0, 10.0, is_first=True, has_job=True)
    for now_s in range(1, 30):
        said = [what for verb, what in fence.step(float(now_s), [{"do": "ping"}]) if verb == SAY]
        asked = [word["t"] for word in said if "t" in word]
        if asked and is_answered:
            fence.step(now_s + 0.01, [{"do": "ping", "t": asked[0]}])
    assert fence.heard == (29.0 if is_answered else 3.0)


# --- odd words of those who have the token ----------------------------------------------------------------------------


def test_no_field_of_any_word_can_be_so_odd_that_an_end_raises() -> None:
    names = ("ev", "do", "t", "s", "count", "code", "signal", "kernel", "reached", "grace_s", "x")
    safe = Line("n1")
    door = Door()
    well = greet(door, safe)
    for word in WORDS:
        for name in names:
            for bad in BAD:
                text = json.dumps({**word, name: bad}).encode()
                line = Line()
                end = greet(door, line)
                session, guard = line.session, door.guards["n0", 0]
                assert session is not None and guard.connection is not None and guard.connection.session is not None
                said = line.hear(guard.connection.session.seal(text))
                assert [one["do"] for one in said] in ([], ["ping"], ["signal"], ["end"])
                door.hear(end, session.seal(text))
                assert guard.code in (None, *range(256)) and guard.signal in (None, *range(1, 65))
                line.close()
    safe.say(GONE)
    door.hear(well, safe.end.out)
    assert door.guards["n1", 0].gone
    assert len(door.signalled) <= 4096 and all(name.encode() for name in door.signalled)


def test_a_guard_obeys_each_order_that_its_line_lets_through() -> None:
    """What node.guard.protocol takes for an order is one that the guard can carry out."""
    for word in WORDS:
        for name, value in ((name, value) for name in ("signal", "grace_s") for value in BAD):
            line = Line()
            greet(door := Door(), line)
            connection = door.guards["n0", 0].connection
            assert connection is not None and connection.session is not None
            for said in line.hear(connection.session.seal(json.dumps({**word, name: value}).encode())):
                if said["do"] == "signal":
                    assert signal_handlers([], said["signal"]) == {}
                elif said["do"] == "end":
                    assert 0.0 <= float(said["grace_s"]) < float("inf")


# --- floods -----------------------------------------------------------------------------------------------------------


def _stranger(address: str) -> Connection:
    return Connection(socket.socket(), address, NOW_S, "")


def test_whoever_has_most_places_loses_one_and_a_node_of_the_job_none_before_others() -> None:
    strangers = Strangers(4)
    strangers.keep_for(["10.0.0.9"])
    first, second, third, own = (_stranger(address) for address in ("10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.9"))
    assert [strangers.add(one) for one in (first, second, third, own)] == [None] * 4
    late = _stranger("10.0.0.3")
    assert strangers.add(late) is first
    strangers.discard(first)
    other = _stranger("10.0.0.9")
    gone = strangers.add(other)
    assert gone is not None and gone.address in ("10.0.0.1", "10.0.0.2", "10.0.0.3")
    strangers.discard(gone)
    for _ in range(2):   # the job's own nodes take the rest, and then their own oldest goes
        gone = strangers.add(_stranger("10.0.0.9"))
        assert gone is not None and gone.address != "10.0.0.9"
        strangers.discard(gone)
    assert strangers.add(_stranger("10.0.0.9")) is own


def test_this_hosts_sixteen_million_addresses_are_one() -> None:
    strangers = Strangers(3)
    held = [_stranger(f"127.0.{number}.1") for number in range(2)]
    guest = _stranger("10.0.0.1")
    for one in (*held, guest):
        assert strangers.add(one) is None
    assert strangers.add(_stranger("127.9.9.9")) is held[0]


def test_one_turn_of_the_loop_lets_in_so_many_and_no_more() -> None:
    door = Door()
    door.calls.waiting = [(End(), "10.0.0.1") for _ in range(AT_ONCE + 10)]
    door._accept(NOW_S)
    assert len(door.calls.waiting) == 10


def test_a_stranger_may_say_two_kilobytes() -> None:
    door = Door()
    end = door.accept()
    end.inbox = b"x" * 60_000
    door.watched.known[end](NOW_S)
    assert end.is_open and len(end.inbox) == 60_000 - MAX_GREETING
    door.watched.known[end](NOW_S)
    assert not end.is_open


@pytest.mark.parametrize("text", [b"", b'{"node": "n0", "task": 0, "attempt": 1, "role": "guard", "nonce": "'],
                         ids=["byte by byte", "after half a hello"])
def test_a_stranger_that_sends_a_byte_a_second_has_no_more_time_than_a_silent_one(text: bytes) -> None:
    door = Door()
    end, known = door.accept(), greet(door, Line("n1"))
    door.hear(end, text)
    for second in range(1, 5):
        door.hear(end, b"x")
        door.tick(NOW_S + second, 1.0)
        assert end.is_open
    door.hear(end, b"x")
    door.tick(NOW_S + GREETING_S + 0.1, 1.0)
    assert not end.is_open and known.is_open


class Endless(End):
    """Whoever has a dead leader's port, and sends faster than a guard reads."""

    reads = 0

    def recv(self, size: int) -> bytes:
        self.reads += 1
        assert self.reads < 100, "the guard reads for ever, and nobody keeps its lease"
        return b"x" * size


@pytest.mark.parametrize("is_greeted", [False, True], ids=["a stranger", "who has relayed the greeting"])
def test_a_guard_reads_no_more_in_a_turn_than_a_line_may_have(is_greeted: bool) -> None:
    line = Line()
    if is_greeted:
        greet(Door(), line)
    else:
        line.messages(NOW_S)
    flood = line.sock = Endless()   # type: ignore[assignment]
    assert line.messages(NOW_S) == [] and line.sock is None and not flood.is_open


class Loop:
    """A real door and the loop that serves it."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.server = ControlServer(self.selector, TOKEN, 0, "127.0.0.1")

    def turn(self) -> None:
        for key, _ in self.selector.select(0.001):
            key.data(time.monotonic())
        self.server.tick(time.monotonic(), 0.05)

    def greeted(self, link: Link) -> Link:
        until_s = time.monotonic() + DEADLINE_S
        while not link.greeted:
            assert time.monotonic() < until_s, "the guard is not let in"
            self.turn()
            link.messages(time.monotonic())
        return link

    def link(self, node: str) -> Link:
        return Link(f"127.0.0.1:{self.server.port}", None, TOKEN,
                                 {"node": node, "task": 0, "attempt": 1})


def test_guards_are_kept_and_let_in_while_strangers_and_a_guard_flood_the_door() -> None:
    loop, rng, most = Loop(), random.Random(1), 100
    loop.server.strangers = Strangers(most)
    kept, flooding = loop.greeted(loop.link("n0")), loop.greeted(loop.link("n1"))
    strangers: list[socket.socket] = []
    hellos = [b"GET / HTTP/1.1\r\n\r\n", b"[" * 4000, b"\0" * 9000, b'{"nonce": "x"}\n', b"{}\n",
              b'{"node":"n0","task":0,"attempt":1,"role":"guard","nonce":"%b","mac":"%b"}\n' % (b"0" * 64, b"0" * 64)]
    for number in range(GREETINGS):
        stranger = socket.create_connection(("127.0.0.1", loop.server.port), DEADLINE_S)
        strangers.append(stranger)
        if number >= most + 20:   # those who hold a place and say nothing come first
            stranger.sendall(rng.choice(hellos))
        if len(strangers) > most + 20:
            strangers.pop(0).close()
        assert flooding.session is not None
        flooding.outbox += b"".join(flooding.session.seal(b'{"ev": "pong"}') for _ in range(20))
        for link in (kept, flooding):
            link._flush()
            for word in link.messages(time.monotonic()):
                if word["do"] == "ping":
                    link.say({"ev": "pong"})
        loop.turn()
    late = loop.greeted(loop.link("n2"))
    assert kept.greeted and flooding.greeted and {node for node, _ in loop.server.guards} == {"n0", "n1", "n2"}
    assert sum(connection.guard is None for connection in loop.server._connections) <= most
    for link in (kept, flooding, late):
        link.close()
    for stranger in strangers:
        stranger.close()
    loop.server.close()
    loop.selector.close()
