"""A run folder that is gone is told from one whose filesystem is away."""

from __future__ import annotations

from safelaunch.decide.ends import vanished
from safelaunch.decide.ends.vanished import LEAST_LOOKS, Look, Missing, Next, Spot, judge, missing_at
from tests.tables import each

# /scratch is a mount; runs is a link into it; /auto/home is mounted on demand.
_PLAIN = (Spot("/", 1, 2), Spot("/home", 1, 5), Spot("/home/u", 1, 6), Spot("/home/u/runs", 1, 7),
          Spot("/home/u/runs/a", 1, 8))
_LINKED = (Spot("/", 1, 2), Spot("/home", 1, 5), Spot("/home/runs", 1, 7), Spot("/scratch", 9, 2),
           Spot("/scratch/u", 9, 3), Spot("/scratch/u/a", 9, 4))
_AUTO = (Spot("/", 1, 2), Spot("/auto", 3, 1), Spot("/auto/home", 9, 1), Spot("/auto/home/a", 9, 4))


def _ids(route: tuple[Spot, ...], count: int, **changed: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    return tuple(changed.get(place.path.rpartition("/")[2] or "root", (place.device, place.inode))
                 for place in route[:count])


_LOOKS = {
    "all is there": (_PLAIN, Look(_ids(_PLAIN, 5)), None),
    "the folder alone is removed": (_PLAIN, Look(_ids(_PLAIN, 4), False), "/home/u/runs/a"),
    "its parent is removed or renamed": (_PLAIN, Look(_ids(_PLAIN, 3), False), "/home/u/runs"),
    "the project is renamed": (_PLAIN, Look(_ids(_PLAIN, 2), False), "/home/u"),
    "runs was removed and made anew": (_PLAIN, Look(_ids(_PLAIN, 4, runs=(1, 99)), False), "/home/u/runs/a"),
    "the folder above lists it, but it cannot be found": (_PLAIN, Look(_ids(_PLAIN, 3), True), None),
    "the folder above cannot be listed": (_PLAIN, Look(_ids(_PLAIN, 3), None), None),
    "nobody knows how it was": ((), Look((), False), None),
    "the link to it is removed": (_LINKED, Look(_ids(_LINKED, 2), False), "/home/runs"),
    "what the link points to is removed": (_LINKED, Look(_ids(_LINKED, 4), False), "/scratch/u"),
    "the mount point is empty": (_LINKED, Look(_ids(_LINKED, 4, scratch=(1, 77)), False), None),
    "another filesystem is mounted there": (_LINKED, Look(_ids(_LINKED, 4, scratch=(12, 2)), False), None),
    "the server shows an empty disk under the same mount": (
        _LINKED, Look(_ids(_LINKED, 4, scratch=(9, 1)), False), None),
    "the mount point itself is gone": (_LINKED, Look(_ids(_LINKED, 3), False), None),
    "an automounter has unmounted it": (_AUTO, Look(_ids(_AUTO, 2), False), None),
    "removed below an automounter's mount": (_AUTO, Look(_ids(_AUTO, 3), False), "/auto/home/a"),
}


@each("route,look,gone", _LOOKS.values(), ids=_LOOKS)
def test_what_a_look_shows_is_gone_or_not_known(route: tuple[Spot, ...], look: Look, gone: str | None) -> None:
    assert missing_at(route, look) == gone


def _seen(looks: int, for_s: float, **more: object) -> Missing:
    return Missing("/home/u/runs", 100.0 - for_s, looks)._replace(**more)   # type: ignore[arg-type]


_NEXT = {
    "not for a minute yet": (_seen(LEAST_LOOKS, 59.0), False, Next.WATCH),
    "one node, for a minute": (_seen(LEAST_LOOKS, 60.0), False, Next.GONE),
    "a supervisor that stood still has hardly looked": (_seen(LEAST_LOOKS - 1, 600.0), False, Next.WATCH),
    "another node is asked": (_seen(LEAST_LOOKS, 60.0), True, Next.ASK),
    "it was asked just now": (_seen(LEAST_LOOKS, 80.0, asked_s=90.0), True, Next.WATCH),
    "it is asked again": (_seen(LEAST_LOOKS, 120.0, asked_s=60.0), True, Next.ASK),
    "it says so, too": (_seen(LEAST_LOOKS, 60.0, is_confirmed=True), True, Next.GONE),
    "no other node can say": (_seen(LEAST_LOOKS, vanished.ALONE_S, asked_s=90.0), True, Next.GONE),
}


@each("missing,has_others,step", _NEXT.values(), ids=_NEXT)
def test_it_is_gone_after_a_minute_and_the_word_of_another_node(
    missing: Missing, has_others: bool, step: Next
) -> None:
    assert judge(missing, 100.0, has_others=has_others) is step


def test_a_look_that_finds_it_begins_anew() -> None:
    missing = Missing()
    for now_s in (10.0, 13.0, 16.0):
        missing = missing.seen("/runs", now_s)
    assert (missing.since_s, missing.looks) == (10.0, 3)
    assert missing.seen(None, 19.0).looks == 0
    assert missing.seen("/runs/a", 19.0) == Missing("/runs/a", 19.0, 1)
