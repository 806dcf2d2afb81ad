"""Messages between guards, standbys and leader: lines of JSON, with proofs before them and on each.

Both ends first prove that they know the run's token, by HMAC-SHA256 over a random number of each. Then each line begins
with a proof over its number and its text, under a key of this connection and this direction. Someone in between can
only pass lines on: a forged, repeated, missing or reordered line ends the connection. Nothing here raises for what a
peer has sent.

HMAC-SHA256 takes 2 us a line; keyed BLAKE2 takes less, and is refused by a Python in FIPS mode.

Standard library, Python 3.9.
"""

from __future__ import annotations

import hmac
import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_LINE = 1 << 16
MAX_GREETING = 2 << 10   # of a stranger's input: its hello has 300 bytes and the node's name
ROLES = ("guard", "standby")
NONCE = 32               # characters of each side's random number
SEAL = 33                # of a line's proof: 128 bits, and a blank
PING, PONG = b'{"do": "ping"}', b'{"ev": "pong"}'   # most of all lines
MOST_NAMES, MAX_NAME = 256, 255
STEP_TASKS = 1 << 16     # from here on: tasks of the steps that a user's script starts, a range for each step
MOST_KERNEL_LINES, MAX_KERNEL_LINE = 40, 400


class Session:
    """The lines of one connection after both proofs."""

    def __init__(self, token: bytes, nonces: str, is_leader: bool) -> None:
        down, up = [hmac.digest(token, ("session|%s|%s" % (nonces, way)).encode(), "sha256") for way in ("down", "up")]
        self._own, self._theirs = (down, up) if is_leader else (up, down)
        self._said = self._heard = 0

    def seal(self, text: bytes) -> bytes:
        """The line that carries this text."""
        self._said += 1
        return _seal(self._own, self._said, text) + text + b"\n"

    def unseal(self, line: bytes) -> bytes | None:
        """The text of a line; None: it is not the other end's next line."""
        text = line[SEAL:]
        if not hmac.compare_digest(_seal(self._theirs, self._heard + 1, text), line[:SEAL]):
            return None
        self._heard += 1
        return text


def _seal(key: bytes, number: int, text: bytes) -> bytes:
    return hmac.digest(key, b"%d|%b" % (number, text), "sha256").hex()[:32].encode() + b" "


def step_range(step_id: int) -> int:
    """Which range of task numbers, from 1 on, the tasks of a job step have; all of them fit into a hello."""
    return step_id % 32000 + 1


def mac(token: bytes, role: str, text: str) -> str:
    """Hex HMAC-SHA256 of a role and a text; the role keeps one side's proof from being replayed as the other's."""
    return hmac.digest(token, (role + "|" + text).encode(errors="replace"), "sha256").hex()


def challenge() -> tuple[str, bytes]:
    """The leader's first line to a caller, and the number in it."""
    nonce = os.urandom(16).hex()
    return nonce, json.dumps({"nonce": nonce}).encode() + b"\n"


def introduce(token: bytes, who: dict[str, Any], line: bytes) -> tuple[str, bytes] | None:
    """The caller's answer to that: both numbers, and its line; None: not a leader's line."""
    word = _read(line, {"nonce": _hex(NONCE)})
    if word is None:
        return None
    nonces = os.urandom(16).hex() + word["nonce"]
    hello = dict(who, role=who.get("role", "guard"), nonce=nonces)
    hello["mac"] = mac(token, hello["role"], nonces + _name(hello))
    return nonces, json.dumps(hello).encode() + b"\n"


def check_hello(token: bytes, nonce: str, line: bytes) -> dict[str, Any] | None:
    """The caller, {"role", "node", "task", "attempt", "nonce", "mac"}; None where that is not proved.

    A task of a script's srun also tells "tasks", how many its step has; else it is missing or None.
    """
    hello = _read(line, {"role": ROLES.__contains__, "node": _is_name, "task": _is_small, "attempt": _is_small,
                         "tasks": _is_count, "nonce": _hex(2 * NONCE), "mac": _hex(64)})
    if hello is None or hello["nonce"][NONCE:] != nonce:
        return None
    wanted = mac(token, hello["role"], hello["nonce"] + _name(hello))
    return hello if hmac.compare_digest(wanted, hello["mac"]) else None


def welcome(token: bytes, nonces: str) -> bytes:
    """The leader's own proof."""
    return json.dumps({"mac": mac(token, "leader", nonces)}).encode() + b"\n"


def is_welcome(token: bytes, nonces: str, line: bytes) -> bool:
    """Whether a line is that."""
    word = _read(line, {"mac": _hex(64)})
    return word is not None and hmac.compare_digest(mac(token, "leader", nonces), word["mac"])


def from_leader(text: bytes) -> dict[str, Any] | None:
    """An order or a ping; None: neither."""
    return _read(text, _ORDERS, "do")


def from_caller(text: bytes) -> dict[str, Any] | None:
    """A report of a guard or a standby; None: neither."""
    return _read(text, _REPORTS, "ev")


def _read(text: bytes, checks: dict[str, Any], kind: str = "") -> dict[str, Any] | None:
    """The fields of a line, each judged by its check; a missing field is judged as None.

    A line that names its kind has the checks of that kind.
    """
    try:
        word = json.loads(text)
        checks = checks[word[kind]] if kind else checks
        is_whole = all(check(word.get(name)) for name, check in checks.items())
        return word if is_whole and all(name in checks or name == kind for name in word) else None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None   # not JSON, or no object


def _name(hello: dict[str, Any]) -> str:
    return "%s|%s|%s|%s" % (hello["node"], hello["task"], hello["attempt"], hello.get("tasks"))


def _hex(length: int) -> Any:
    """The check of a text of so many hexadecimal digits."""
    return lambda value: type(value) is str and len(value) == length and not value.strip("0123456789abcdef")


def _is_text(value: object, most: int) -> bool:
    """Whether it is text that can be printed and written: half a surrogate pair cannot."""
    return type(value) is str and len(value) <= most and not any("\ud800" <= char <= "\udfff" for char in value)


def _is_name(value: object) -> bool:
    return bool(value) and _is_text(value, MAX_NAME)


def _is_number(value: object, most: float) -> bool:
    """Whether it is a number; NaN is none."""
    return type(value) in (int, float) and 0 <= value <= most   # type: ignore[operator]


def _is_time(value: object) -> bool:
    return value is None or _is_number(value, 1e12)


def _is_count(value: object) -> bool:
    return value is None or (type(value) is int and 0 <= value < 1 << 62)


def _is_small(value: object) -> bool:
    """Whether it is a task, -1 for a standby, or an attempt."""
    return type(value) is int and -1 <= value < 1 << 31


def _is_code(value: object) -> bool:
    return type(value) is int and 0 <= value <= 255


def _is_signal(value: object) -> bool:
    return type(value) is int and 1 <= value <= 64


def _are_names(value: object) -> bool:
    return type(value) is list and len(value) <= MOST_NAMES and all(map(_is_name, value))


def _are_kernel_lines(value: object) -> bool:
    return value is None or (type(value) is list and len(value) <= MOST_KERNEL_LINES and all(
        type(line) is list and len(line) == 2 and _is_number(line[0], 1e12) and _is_text(line[1], MAX_KERNEL_LINE)
        for line in value))


_ORDERS = {"ping": {"t": _is_time, "count": _is_count, "s": _is_time}, "signal": {"signal": _is_signal},
           "save": {"signal": _is_signal},
           "end": {"grace_s": lambda value: _is_number(value, 1e9)}}
_REPORTS = {"pong": {"t": _is_time, "s": _is_time}, "gone": {"code": _is_code}, "signalled": {"reached": _are_names},
            "exited": {"code": _is_code, "kernel": _are_kernel_lines,
                       "signal": lambda value: value is None or _is_signal(value)}}
