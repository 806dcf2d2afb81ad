"""python -m tests.relay PORT SEED LEAST: stands between guards and their leader and harms what they say.

It takes PORT as soon as a leader's death sets it free, says so, reads the new leader's port from stdin, and then passes
on what is said. On each connection it does one harm, drawn by the seed; the ends have HANG_UP_S to end the connection.
With the next line of stdin, and LEAST harms or after WAIT_S, it says, as JSON, how often which harm was done ("repeat,
down": to the guard), and after which of them nobody has hung up; from then on it harms nothing, until stdin ends.

It keeps no guard waiting: one that is cut off for 2 s counts as dead, with or without an attack (docs/security.md).
"""

from __future__ import annotations

import collections
import contextlib
import json
import random
import select
import socket
import sys
import threading
import time
from collections.abc import Callable

from tests.patience import Patience

DOWN, UP = "down", "up"   # to the guard, to the leader
GREETING = {DOWN: 2, UP: 1}   # lines of the greeting
HANG_UP_S = 8.0   # a line that was left out shows with the next one; a greeting may take 5 s
RECORDED = 40     # connections that are kept to be played back
WAIT_S = 40.0     # guards that were silent for 3 s have read in the record where the leader is, and no longer call here
GREETINGS_S = 3.0   # between two harms to a greeting: a guard calls again after 1 s
WORDS = {DOWN: (b'{"do": "end", "grace_s": 0}',),
         UP: (b'{"ev": "exited", "code": 77, "signal": null}', b'{"ev": "gone", "code": 77}')}

Lines = dict[str, list[bytes]]


class Relay:
    """What all connections share."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.upstream = 0
        self.is_known = threading.Event()
        self.recorded: collections.deque[Lines] = collections.deque(maxlen=RECORDED)
        self.done: collections.Counter[str] = collections.Counter()
        self.kept: list[str] = []
        self.is_quiet = False
        self._greeting_s = 0.0

    def may_harm_greeting(self) -> bool:
        """Whether the last such harm is long enough ago."""
        now_s = time.monotonic()
        is_time = now_s - self._greeting_s > GREETINGS_S
        self._greeting_s = now_s if is_time else self._greeting_s
        return is_time

    def serve(self, listener: socket.socket) -> None:
        """Take calls, for ever."""
        while True:
            guard, _ = listener.accept()
            threading.Thread(target=self._relay, args=(guard,), daemon=True).start()

    def _relay(self, guard: socket.socket) -> None:
        self.is_known.wait()
        with contextlib.suppress(OSError):   # the leader is gone
            leader = self._call()
            if self.recorded and not self.is_quiet and self.dice.random() < 0.1:
                self._play_back(self._call(), UP)
            if self.recorded and not self.is_quiet and self.dice.random() < 0.2 and self.may_harm_greeting():
                leader.close()
                self._play_back(guard, DOWN)
                return
            Middle(self, guard, leader).run()

    def _call(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.upstream), HANG_UP_S)

    def _play_back(self, sock: socket.socket, way: str) -> None:
        """All that an end has said on another connection; one that answers more than its first line has believed it."""
        said, is_ended, patience = b"", False, Patience(HANG_UP_S)
        with sock:
            try:
                sock.sendall(b"".join(line + b"\n" for line in self.dice.choice(self.recorded)[way]))
                while not is_ended and not patience.is_over():
                    if select.select([sock], [], [], 0.2)[0]:
                        data = sock.recv(4096)
                        said += data
                        is_ended = not data
            except (ConnectionResetError, BrokenPipeError):
                is_ended = True
        self.count(f"playback, {way}", is_ended and said.count(b"\n") <= 1)

    def count(self, harm: str, is_ended: bool) -> None:
        """A harm was done."""
        self.done[harm] += 1
        if not is_ended:
            self.kept.append(harm)


class Middle:
    """One connection, and the harm that is done to it."""

    def __init__(self, relay: Relay, guard: socket.socket, leader: socket.socket) -> None:
        self.relay, self.dice = relay, relay.dice
        self.socks = {DOWN: guard, UP: leader}   # to whom a line of this way goes
        self.inbox = {DOWN: b"", UP: b""}
        self.said: Lines = {DOWN: [], UP: []}
        self.harm = self.dice.choice(sorted(HARMS))
        self.way = self.dice.choice((DOWN, UP))
        is_early = self.harm not in NOT_IN_A_GREETING and self.dice.random() < 0.3 and relay.may_harm_greeting()
        self.at = self.dice.randrange(GREETING[self.way]) if is_early else GREETING[self.way] + self.dice.randrange(3)
        self.held: bytes | None = None
        self.patience: Patience | None = None   # once the harm is done

    def run(self) -> None:
        """Pass on what is said until somebody hangs up."""
        is_ended = False
        with self.socks[DOWN], self.socks[UP]:
            while not is_ended and (self.patience is None or not self.patience.is_over()):
                for sock in select.select([*self.socks.values()], [], [], 0.2)[0]:
                    is_ended = is_ended or not self._pass_on(UP if sock is self.socks[DOWN] else DOWN)
        if self.patience is not None:
            self.relay.count(f"{self.harm}, {self.way}", is_ended)
        if all(len(self.said[way]) > GREETING[way] for way in self.said):
            self.relay.recorded.append(self.said)

    def _pass_on(self, way: str) -> bool:
        """False once an end has hung up; a line that is longer than a read is passed on once it is whole."""
        to, by = self.socks[way], self.socks[UP if way == DOWN else DOWN]
        try:
            data = by.recv(65536)
            *lines, self.inbox[way] = (self.inbox[way] + data).split(b"\n")
            for line in lines:
                to.sendall(b"".join(one + b"\n" for one in self._harmed(way, line)))
        except OSError:
            return False
        return bool(data)

    def _harmed(self, way: str, line: bytes) -> list[bytes]:
        self.said[way].append(line)
        if way != self.way or self.patience is not None or self.relay.is_quiet or len(self.said[way]) <= self.at:
            return [line]
        lines = HARMS[self.harm](self, line)
        if self.held is None or len(lines) > 1:
            self.patience = Patience(HANG_UP_S)
        return lines

    def _swap(self, line: bytes) -> list[bytes]:
        if self.held is None:
            self.held = line
            return []
        return [line, self.held]

    def _alter(self, line: bytes) -> list[bytes]:
        at = self.dice.randrange(len(line))
        return [(line[:at] + bytes([line[at] ^ 1 << self.dice.randrange(7)]) + line[at + 1:]).replace(b"\n", b"")]

    def _say(self, line: bytes) -> list[bytes]:
        return [*WORDS[self.way], line]

    def _say_with_proof(self, line: bytes) -> list[bytes]:
        """One that is another line's."""
        return [line[:33] + word for word in WORDS[self.way]]

    def _turn_back(self, line: bytes) -> list[bytes]:
        others = self.said[UP if self.way == DOWN else DOWN]
        return [others[-1] if others else b"", line]

    def _say_again(self, line: bytes) -> list[bytes]:
        """What was said on another connection."""
        if not self.relay.recorded:
            return [line, line]
        return [self.dice.choice(self.dice.choice(self.relay.recorded)[self.way]), line]


HARMS: dict[str, Callable[[Middle, bytes], list[bytes]]] = {
    "repeat": lambda middle, line: [line, line], "leave out": lambda middle, line: [], "swap": Middle._swap,
    "alter": Middle._alter, "cut": lambda middle, line: [line[:middle.dice.randrange(len(line))]],
    "own word": Middle._say, "another's proof": Middle._say_with_proof, "back to its sender": Middle._turn_back,
    "of another connection": Middle._say_again,
}
NOT_IN_A_GREETING = ("leave out", "swap")   # nothing would be said after it


def _take(port: int) -> socket.socket:
    """A listener on the port, once it is free."""
    while True:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            listener.listen(64)
            return listener
        listener.close()
        time.sleep(0.001)


def main() -> int:
    """0."""
    port, seed, least = map(int, sys.argv[1:])
    relay = Relay(random.Random(seed))
    listener = _take(port)
    threading.Thread(target=relay.serve, args=(listener,), daemon=True).start()
    print("taken", flush=True)
    relay.upstream = int(sys.stdin.readline())
    relay.is_known.set()
    sys.stdin.readline()
    patience = Patience(WAIT_S)
    while sum(list(relay.done.values())) < least and not patience.is_over():
        time.sleep(0.02)
    relay.is_quiet = True
    print(json.dumps({"done": dict(sorted(relay.done.items())), "kept": relay.kept}), flush=True)
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
