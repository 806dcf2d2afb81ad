"""python -m tests.flood KIND PORT COUNT: floods a leader's door, from thousands of addresses of this host.

hold     COUNT connections that say nothing, each opened anew when it is closed
loris    the same, and each says a byte of a greeting now and then
churn    connections that are opened and reset, as fast as one processor can, until stdin ends
greet    COUNT hostile greetings, one after another
proved   reads the run's token from stdin, proves COUNT times that it knows it, and then says what no guard says

When COUNT is reached it says so, as JSON: "opened" connections so far, and "accepted", of those that should have been
closed and were not. It goes on until stdin ends.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import resource
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator

from safelaunch.node.guard import protocol
from tests.doorplay import WORDS, odd_word

CLOSED_S = 60.0    # a stranger that has said something odd is closed at once, one that says nothing after 5 s
A_TURN = 100       # connections that are opened between two looks at those that are there
LORIS = b'{"node": "local0", "task": 0, "attempt": 1, "role": "guard", '
RESET = struct.pack("ii", 1, 0)   # socket(7), SO_LINGER


class Flood:
    """One flood; `opened` and `accepted` are what it tells."""

    def __init__(self, port: int, count: int, token: bytes) -> None:
        self.port, self.count, self.token = port, count, token
        self.dice = random.Random(1)
        self.opened = self.accepted = 0
        self.is_over = threading.Event()

    def call(self, *, is_waiting: bool = True) -> socket.socket:
        """A connection from any of this host's 16 million addresses; OSError: it got none."""
        sock = socket.socket()
        try:
            sock.bind((".".join(("127", *(str(self.dice.randrange(1, 255)) for _ in range(3)))), 0))
            sock.settimeout(CLOSED_S if is_waiting else 0.0)
            with contextlib.suppress(BlockingIOError):
                sock.connect(("127.0.0.1", self.port))
        except OSError:
            sock.close()
            raise
        self.opened += 1
        return sock

    def tell(self) -> None:
        """The count is reached."""
        print(json.dumps({"opened": self.opened, "accepted": self.accepted}), flush=True)

    def hold(self, byte_by_byte: bytes = b"") -> None:
        poll, held, is_told = select.epoll(), dict[int, socket.socket](), False
        while not self.is_over.is_set():
            for _ in range(min(A_TURN, self.count - len(held))):
                with contextlib.suppress(OSError):
                    sock = self.call(is_waiting=False)
                    held[sock.fileno()] = sock
                    poll.register(sock, select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR)
            if byte_by_byte and held:
                for sock in self.dice.sample(sorted(held.values(), key=socket.socket.fileno), min(A_TURN, len(held))):
                    with contextlib.suppress(OSError):
                        sock.send(self.dice.choice(byte_by_byte).to_bytes(1, "big"))
            for number, _ in poll.poll(0.01):
                poll.unregister(number)
                held.pop(number).close()
            if not is_told and self.opened >= self.count:
                is_told = True
                self.tell()

    def loris(self) -> None:
        self.hold(LORIS)

    def churn(self) -> None:
        while not self.is_over.is_set():
            with contextlib.suppress(OSError), self.call(is_waiting=False) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            if self.opened == self.count:
                self.tell()

    def greet(self) -> None:
        self._say_all(map(self._is_greeted, hostile_greetings()))

    def proved(self) -> None:
        self._say_all(self._is_believed(number) for number in itertools.count())

    def _say_all(self, conversations: Iterator[bool]) -> None:
        for is_accepted in conversations:
            self.accepted += is_accepted
            if self.opened == self.count:
                self.tell()
            if self.is_over.is_set():
                break

    def _is_greeted(self, answer: Callable[[str], bytes]) -> bool:
        """Whether the door says more than its first line to this."""
        try:
            with self.call() as sock:
                nonce = json.loads(_line(sock))["nonce"]
                sock.sendall(answer(nonce))
                return bool(_line(sock))
        except TimeoutError:
            return True
        except (OSError, ValueError):
            return False   # closed while it was spoken to, or before

    def _is_believed(self, number: int) -> bool:
        """Whether a line that is not the next one of its connection ends it not; odd words are said before it."""
        try:
            with self.call() as sock:
                who = {"node": "stranger", "task": number % 100, "attempt": 2}   # of none that there is
                told = protocol.introduce(self.token, who, _line(sock))
                assert told is not None
                sock.sendall(told[1])
                assert protocol.is_welcome(self.token, told[0], _line(sock)), "the token is another one"
                session = protocol.Session(self.token, told[0], is_leader=False)
                sock.sendall(session.seal(b'{"ev": "gone", "code": 0}'))   # whoever hangs up before that counts as dead
                for _ in range(number % 3):
                    sock.sendall(session.seal(odd_word(self.dice)))
                sock.sendall(self.dice.choice((
                    b"[" * 70_000, b'{"ev": "gone", "code": 77}\n', session.seal(b"[" * 30_000),
                    b"0" * 32 + b' {"ev": "gone", "code": 77}\n', b"\n", b"\0" * 200 + b"\n",
                    session.seal(json.dumps({**self.dice.choice(WORDS), "x": 1}).encode()),
                    session.seal(b"") + session.seal(b'{"ev": "pong"}'))))
                until_s = time.monotonic() + CLOSED_S
                while _line(sock):   # pings
                    if time.monotonic() > until_s:
                        return True
        except TimeoutError:
            return True
        except OSError:
            pass   # it is closed while it speaks
        return False


def hostile_greetings() -> Iterator[Callable[[str], bytes]]:
    """Answers to a nonce, for ever."""
    dice = random.Random(2)
    who = {"node": "local0", "task": 0, "attempt": 1, "role": "guard"}
    digits = "0123456789abcdef"

    def of(token: bytes, **odd: object) -> Callable[[str], bytes]:
        def answer(nonce: str) -> bytes:
            nonces = "".join(dice.choices(digits, k=32)) + nonce
            text = f"{nonces}{who['node']}|{who['task']}|{who['attempt']}|None"
            hello = {**who, "nonce": nonces, "mac": protocol.mac(token, str(odd.get("role", "guard")), text), **odd}
            return json.dumps(hello).encode() + b"\n"
        return answer

    while True:
        yield from (
            of(b""), of(b"\0"), of(b"x" * 64), of(dice.randbytes(32)), of(b"", role="standby"), of(b"", role="leader"),
            of(b"", mac=""), of(b"", mac="0" * 64), of(b"", mac=None), of(b"", nonce="0" * 64), of(b"", nonce=""),
            of(b"", node="\ud800"), of(b"", node="x" * 5000), of(b"", task=10**400), of(b"", attempt=True),
            of(b"", mac=["0" * 64]), lambda nonce: b"[" * 60_000, lambda nonce: b"7" * 60_000,
            lambda nonce: b"\n" * 3000, lambda nonce: b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            lambda nonce: json.dumps({"nonce": nonce}).encode() + b"\n", lambda nonce: dice.randbytes(300) + b"\n",
            lambda nonce: protocol.welcome(b"", nonce), lambda nonce: odd_word(dice) + b"\n")


def _line(sock: socket.socket) -> bytes:
    """The next line; b"" once the other end has closed."""
    line = b""
    while not line.endswith(b"\n"):
        byte = sock.recv(1)
        if not byte:
            return b""
        line += byte
    return line


def main() -> int:
    """0."""
    kind, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    flood = Flood(port, count, sys.stdin.readline().strip().encode() if kind == "proved" else b"")
    ways = {"hold": flood.hold, "loris": flood.loris, "churn": flood.churn, "greet": flood.greet,
            "proved": flood.proved}
    work = threading.Thread(target=ways[kind])
    work.start()
    sys.stdin.read()
    flood.is_over.set()
    work.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
