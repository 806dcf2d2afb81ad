"""Values out of a pickle that holds nothing else, read step by step: no class is looked up, nothing can be called.

PyTorch's flight recorder writes such pickles (torch/csrc/distributed/c10d/FlightRecorder.hpp, pickle_str). Unpickling a
file from a shared folder would run whatever somebody has put into it. Travels with node.collect as text: standard
library, Python 3.9.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SKIPPED = frozenset(("PROTO", "FRAME"))
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = frozenset(("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "UNICODE",
                     "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"))
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUT = frozenset(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"))
_GET = frozenset(("GET", "BINGET", "LONG_BINGET"))


class _Stack:
    """The pickle machine's stack (pickletools' docstring), with the places of its marks."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def since_mark(self) -> list[Any]:
        """What lies above the last mark, taken off."""
        place = self.marks.pop()
        found = self.values[place:]
        del self.values[place:]
        return found

    def last(self, count: int) -> tuple[Any, ...]:
        """The last values, taken off."""
        if len(self.values) < count:
            raise IndexError
        found = tuple(self.values[len(self.values) - count:])
        del self.values[len(self.values) - count:]
        return found


def read(data: bytes) -> Any:
    """The value that a pickle of dicts, lists, tuples, texts and numbers holds; raises ValueError for any other."""
    import pickletools

    stack = _Stack()
    try:
        for op, argument, _ in pickletools.genops(data):
            if op.name == "STOP":
                return stack.values.pop()
            _take(stack, op.name, argument)
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("a broken pickle: %r" % (error,)) from error
    raise ValueError("a pickle without an end")


def _take(stack: _Stack, name: str, argument: Any) -> None:
    if name in _VALUES:
        stack.values.append(argument)
    elif name in _CONSTANTS:
        stack.values.append(_CONSTANTS[name])
    elif name == "MARK":
        stack.marks.append(len(stack.values))
    elif name in _PUT:
        stack.memo[len(stack.memo) if name == "MEMOIZE" else int(argument)] = stack.values[-1]
    elif name in _GET:
        stack.values.append(stack.memo[int(argument)])
    elif name in _TUPLES:
        stack.values.append(stack.last(_TUPLES[name]))
    elif name not in _SKIPPED:
        _build(stack, name)


def _build(stack: _Stack, name: str) -> None:
    if name in ("EMPTY_LIST", "EMPTY_DICT"):
        stack.values.append([] if name == "EMPTY_LIST" else {})
    elif name in ("TUPLE", "LIST"):
        items = stack.since_mark()
        stack.values.append(tuple(items) if name == "TUPLE" else items)
    elif name in ("APPENDS", "APPEND"):
        items = stack.since_mark() if name == "APPENDS" else list(stack.last(1))
        stack.values[-1].extend(items)
    elif name in ("SETITEMS", "SETITEM"):
        items = stack.since_mark() if name == "SETITEMS" else list(stack.last(2))
        stack.values[-1].update(zip(items[::2], items[1::2]))  # noqa: B905 - 3.10's
    elif name == "DICT":
        items = stack.since_mark()
        stack.values.append(dict(zip(items[::2], items[1::2])))  # noqa: B905 - 3.10's
    else:
        raise ValueError("holds more than plain values: %s" % name)
