"""python -m tests.doorplay --seeds 0..100000 → the guards' door and a guard's line under chance, in memory.

Both ends are the real ones, `Door` and `Line`; only their sockets are made up, so that a test stands in the middle and
decides what arrives. A seed makes a conversation, harms it, and checks what each end has taken for true: never more
than the first lines of what the other end has said. A seed that fails is printed, and fails again.
"""

from __future__ import annotations

import argparse
import json
import random
import selectors
import sys
from collections.abc import Callable
from typing import Any

from safelaunch.guard.io.callers import Guard
from safelaunch.guard.io.control import STANDBY_TASK, ControlServer
from safelaunch.node.guard.link import Link

TOKEN = "a" * 64
NOW_S = 1000.0


class End:
    """A socket of which the test sees both sides: `inbox` is what has come, `out` what was sent."""

    def __init__(self) -> None:
        self.inbox, self.out = b"", b""
        self.is_open = True

    def recv(self, size: int) -> bytes:
        if not self.inbox:
            raise BlockingIOError
        data, self.inbox = self.inbox[:size], self.inbox[size:]
        return data

    def send(self, data: bytes) -> int:
        if not self.is_open:
            raise BrokenPipeError
        self.out += data
        return len(data)

    def take(self) -> list[bytes]:
        """The lines that were sent since the last look."""
        lines, self.out = self.out.split(b"\n"), b""
        assert lines.pop() == b"", "a line was cut"
        return lines

    def close(self) -> None:
        self.is_open = False

    def setblocking(self, flag: bool) -> None: ...

    def setsockopt(self, *words: Any) -> None: ...

    def getsockname(self) -> tuple[str, int]:
        return "", 1


class Calls(End):
    """A listener; `waiting` are those who call, and from where."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[tuple[End, str]] = []

    def accept(self) -> tuple[End, tuple[str, int]]:
        if not self.waiting:
            raise BlockingIOError
        end, address = self.waiting.pop(0)
        return end, (address, 1)


class Watched(selectors.BaseSelector):
    """Who is registered, and what is to be called for it."""

    def __init__(self) -> None:
        self.known: dict[Any, Any] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> Any:
        self.known[fileobj] = data

    def unregister(self, fileobj: Any) -> Any:
        return self.known.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[Any]:
        return []

    def get_map(self) -> Any:
        return self.known


class Door(ControlServer):
    """The real server; `reports` is what it has told the leader."""

    def __init__(self) -> None:
        self.calls, self.watched = Calls(), Watched()
        super().__init__(self.watched, TOKEN)
        self.reports: list[tuple[str, int | None, bool]] = []
        self.on_report = lambda guard: self.reports.append((guard.node, guard.code, guard.gone))

    def _listen(self, port: int) -> Any:
        return self.calls

    def accept(self, address: str = "10.0.0.1") -> End:
        """Somebody calls; the server's end of it."""
        end = End()
        self.calls.waiting.append((end, address))
        self._accept(NOW_S)
        return end

    def only(self) -> Guard:
        """The one who has been let in."""
        [guard] = [*self.guards.values(), *self.standbys.values()]
        return guard

    def hear(self, end: End, data: bytes) -> None:
        """Bytes come in."""
        end.inbox += data
        while end.is_open and end.inbox:
            self.watched.known[end](NOW_S)


class Line(Link):
    """A guard's real connection, or a standby's."""

    def __init__(self, node: str = "n0", role: str = "guard") -> None:
        is_guard = role == "guard"
        super().__init__("leader:1", None, TOKEN, {"node": node, "task": 0 if is_guard else STANDBY_TASK,
                                                   "attempt": int(is_guard), "role": role})

    def _connect(self, now: float) -> None:
        self.sock, self.connected = End(), True   # type: ignore[assignment]

    @property
    def end(self) -> End:   # type: ignore[override]
        assert isinstance(self.sock, End)
        return self.sock

    def hear(self, data: bytes) -> list[dict[str, Any]]:
        """Bytes come in; the words that are taken for the leader's."""
        said: list[dict[str, Any]] = []
        if self.sock is not None:
            self.end.inbox += data
            while self.sock is not None and self.end.inbox:
                said += self.messages(NOW_S)
        return said


def greet(door: Door, line: Line) -> End:
    """The handshake, passed on as it is; the server's end of the connection."""
    line.messages(NOW_S)
    end = door.accept()
    line.hear(_bytes(end.take()))
    door.hear(end, _bytes(line.end.take()))
    line.hear(_bytes(end.take()))
    assert line.greeted
    return end


def _bytes(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


# --- chance -----------------------------------------------------------------------------------------------------------

Lines = list[bytes]
BAD: list[Any] = [
    None, True, -1, 256, 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf"), "", "x", "\ud800", "x" * 3000,
    "é" * 300, [], {}, [[]], [["x", 1]], [[10**400, "x"]], [[1.0, "\udfff"]], [5], ["x"] * 3000, {"a": {}}, 2**63]
WORDS: list[dict[str, Any]] = [
    {"ev": "pong"}, {"ev": "pong", "t": 12.5}, {"ev": "pong", "s": 1.0}, {"ev": "exited", "code": 1, "signal": 9},
    {"ev": "exited", "code": 1, "signal": None, "kernel": [[1.0, "NVRM: Xid"]]}, {"ev": "gone", "code": 0},
    {"ev": "signalled", "reached": ["python[1]"]}, {"do": "ping"}, {"do": "ping", "t": 5.0},
    {"do": "ping", "count": 5, "s": 3.0}, {"do": "signal", "signal": 12}, {"do": "end", "grace_s": 5.0}]


def odd_word(rng: random.Random) -> bytes:
    """A line that nearly is one: a field of another type, one too many, one missing, or no JSON at all."""
    word = dict(rng.choice(WORDS))
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice([*word, "ev", "do", "t", "s", "count", "code", "signal", "kernel", "reached", "grace_s", "x"])
        if rng.random() < 0.2:
            word.pop(name, None)
        else:
            word[name] = rng.choice(BAD)
    text = json.dumps(word).encode()
    odd = rng.random()
    if odd < 0.1:
        text = rng.choice((b"", b"null", b"[" * 30_000, b"7" * 30_000, b"{" * 900, b'"x"', b"\xff\xfe{}", b"\0" * 64))
    elif odd < 0.2:
        cut = rng.randrange(len(text) + 1)
        text = text[:cut] + rng.randbytes(rng.randrange(4)).replace(b"\n", b"") + text[cut + 1:]
    return text


def _harm(rng: random.Random, lines: Lines, others: Lines) -> Lines:
    """The same lines after somebody in the middle has been at them."""
    lines = list(lines)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        place = rng.randrange(len(lines)) if lines else 0
        what = rng.randrange(7)
        if what == 0 and lines:
            del lines[place]
        elif what == 1 and lines:
            lines.insert(rng.randrange(len(lines) + 1), lines[place])
        elif what == 2 and lines:
            lines.insert(rng.randrange(len(lines)), lines.pop(place))
        elif what == 3 and lines and lines[place]:
            at = rng.randrange(len(lines[place]))
            lines[place] = (lines[place][:at] + bytes([lines[place][at] ^ 1 << rng.randrange(7)]) +
                            lines[place][at + 1:]).replace(b"\n", b"")
        elif what == 4:
            lines.insert(place, odd_word(rng))
        elif what == 5 and others:
            lines.insert(place, rng.choice(others))   # what the other end has said, or what was said another time
        elif what == 6 and lines:
            lines[place] = lines[place][:rng.randrange(len(lines[place]) + 1)]
    return lines


def _common(sent: Lines, arrived: Lines) -> int:
    """How many lines have come as they were sent, from the first one on."""
    pairs = zip(sent, arrived, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(sent), len(arrived)))


def _in_pieces(rng: random.Random, data: bytes, hear: Callable[[bytes], Any]) -> list[Any]:
    said = []
    while data:
        size = rng.choice((1, 7, 100, 5000, 1 << 20))
        said.append(hear(data[:size]))
        data = data[size:]
    return said


def play(seed: int) -> None:
    """One conversation; raises AssertionError where an end takes for true what the other one has not said."""
    rng = random.Random(seed)
    role = rng.choice(("guard", "guard", "standby"))
    game: Callable[[random.Random, str], None] = rng.choice((_greeting, _from_guard, _from_leader, _with_the_token))
    game(rng, role)


def _greeting(rng: random.Random, role: str) -> None:
    door, line, other = Door(), Line("n0", role), Line("n1", role)
    line.messages(NOW_S)
    other.messages(NOW_S)
    end, elsewhere = door.accept(), door.accept()
    first = end.take()
    came = _harm(rng, first, elsewhere.take())
    _in_pieces(rng, _bytes(came), line.hear)
    hello = line.end.take() if line.sock is not None else []
    came = _harm(rng, hello, first)
    if rng.random() < 0.1:
        came.append(b"x" * 70_000)
    _in_pieces(rng, _bytes(came), lambda data: door.hear(end, data) if end.is_open else None)
    is_in = any(guard.connection for guard in (*door.guards.values(), *door.standbys.values()))
    assert not is_in or hello[:1] == came[:1], f"let in: {came}"
    if line.sock is None:
        return
    answer = end.take()
    came = _harm(rng, answer, first)
    said = [word for words in _in_pieces(rng, _bytes(came), line.hear) for word in words]
    assert said in ([], [{"do": "hello"}]) and (not said or came[:1] == answer[:1]), f"believed: {came}"


def _from_guard(rng: random.Random, role: str) -> None:
    door, line = Door(), Line("n0", role)
    end = greet(door, line)
    door.reports.clear()
    guard = door.only()
    reports = [word for word in WORDS if "ev" in word]
    words = [rng.choice(reports) for _ in range(rng.randrange(1, 8))]
    for word in words:
        line.say(word)
    sent = line.end.take()
    door.ping_standbys(NOW_S)
    came = _harm(rng, sent, end.take())
    _in_pieces(rng, _bytes(came), lambda data: door.hear(end, data) if end.is_open else None)
    true = words[:_common(sent, came)]
    assert end.is_open == (len(came) == len(true)), f"{came} of {sent}"
    assert guard.gone == any(word["ev"] == "gone" for word in true)
    assert guard.code == next((word["code"] for word in true if "code" in word), None)
    assert len(door.signalled) == door.signal_answers == sum(word["ev"] == "signalled" for word in true)
    assert door.forged == (not end.is_open)


def _from_leader(rng: random.Random, role: str) -> None:
    door, line = Door(), Line("n0", role)
    end = greet(door, line)
    guard = door.only()
    assert guard.connection is not None
    words = [rng.choice([word for word in WORDS if "do" in word]) for _ in range(rng.randrange(1, 8))]
    for word in words:
        door._say(guard.connection, json.dumps(word).encode(), NOW_S)
    sent = end.take()
    line.say({"ev": "pong"})
    came = _harm(rng, sent, line.end.take())
    said = [word for words in _in_pieces(rng, _bytes(came), line.hear) for word in words]
    assert said == words[:_common(sent, came)], f"{came} of {sent}"
    assert line.greeted == (len(came) == len(said))


def _with_the_token(rng: random.Random, role: str) -> None:
    """Whoever has the token can say odd things of himself: nothing is raised, and nobody else suffers."""
    door, line, other = Door(), Line("n0", role), Line("n1")
    end, safe = greet(door, line), greet(door, other)
    for _ in range(rng.randrange(1, 6)):
        if line.session is not None and end.is_open:
            door.hear(end, line.session.seal(odd_word(rng).replace(b"\n", b"")))
        guard = door.standbys.get("n0") or door.guards["n0", 0]
        if guard.connection is not None and guard.connection.session is not None and line.sock is not None:
            for word in line.hear(guard.connection.session.seal(odd_word(rng).replace(b"\n", b""))):
                assert word["do"] in ("ping", "signal", "end")
    for guard in door.guards.values():
        assert guard.code is None or guard.code in range(256)
        assert guard.signal is None or guard.signal in range(1, 65)
        assert all(isinstance(said_s, float) and text.encode() for said_s, text in guard.kernel)
    json.dumps(door.signalled).encode()
    other.say({"ev": "gone", "code": 3})
    door.hear(safe, _bytes(other.end.take()))
    assert door.guards["n1", 0].gone


def main() -> int:
    """0, or 1 after the first seed that fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.doorplay")
    parser.add_argument("--seeds", default="0..100000", metavar="A..B")
    first, _, last = parser.parse_args().seeds.partition("..")
    for seed in range(int(first), int(last or first) + 1):
        try:
            play(seed)
        except Exception:
            print(f"seed {seed}:", file=sys.stderr)
            raise
    print(f"{int(last or first) - int(first) + 1:,} conversations")
    return 0


if __name__ == "__main__":
    sys.exit(main())
