"""A record is a NamedTuple in all that its users see, with its first instances and with later ones."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import typing
from typing import Any

import pytest

from safelaunch.core.records import NamedTuple


class Place(NamedTuple):
    """A record."""

    node: str
    rank: int = 0
    tags: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """As people write it."""
        return f"{self.node}:{self.rank}"


class Named(Place):
    """One that has a base."""


class Peer(typing.NamedTuple):
    """typing's own, of the same fields."""

    node: str
    rank: int = 0
    tags: tuple[str, ...] = ()


SOUND: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("n1",), {}), (("n1", 3), {}), (("n1",), {"rank": 3}), ((), {"node": "n1", "tags": ("a",)})]
WRONG: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}), (("n1", 1, (), 4), {}), (("n1",), {"node": "n2"}), (("n1",), {"other": 1}), ((), {"rank": 1})]


@pytest.mark.parametrize("kind", [Place, Named])
def test_the_first_and_all_later_instances_are_alike(kind: type[Place]) -> None:
    for _ in range(3):
        for values, named in SOUND:
            one: Any = kind(*values, **named)
            peer: Any = Peer(*values, **named)
            assert type(one) is kind and one == peer and hash(one) == hash(peer) and one.text == f"n1:{peer.rank}"
            assert one._asdict() == peer._asdict() and repr(one) == repr(peer).replace("Peer", kind.__name__)
            assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one == kind._make(peer)
            assert one._replace(rank=9) == peer._replace(rank=9) and type(one._replace()) is kind
        for values, named in WRONG:
            with pytest.raises(TypeError):
                kind(*values, **named)
    fixed: Any = kind("n1")
    with pytest.raises(AttributeError):
        fixed.rank = 2
    assert kind._fields == Peer._fields and kind._field_defaults == Peer._field_defaults
    assert not hasattr(Place("n1"), "__dict__")


def test_a_wrong_first_call_says_what_is_wrong() -> None:
    code = ("from __future__ import annotations\nfrom safelaunch.core.records import NamedTuple\n"
            "class Point(NamedTuple):\n    x: int\n    y: int = 0\n"
            "match Point(1):\n    case Point(x, y): print(x, y)\nPoint(z=1)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "1 0\n" and "Point.__new__() got an unexpected keyword argument 'z'" in done.stderr
