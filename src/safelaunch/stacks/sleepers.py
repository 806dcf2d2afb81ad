"""Ranks that sleep while all others poll: a hang without a collective on any stack.

Seen: one rank in a sleep of its own, the others in a loop that polled for its file each 10 ms. All are in the same
function, so that neither functions nor collectives tell them apart. The kernel does. A rank that polls has run between
the samples, at several lines. One that sleeps has not run, at a line where no other was seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from safelaunch.stacks.activity import COMPILE, DATA, STORAGE, USER, classify
from safelaunch.stacks.placetext import tell_place
from safelaunch.stacks.ranks import ObservedRank, Stack
from safelaunch.stacks.scene import HangVerdict, computes, names_of, odd_one
from safelaunch.stacks.stacks import normalise, split_frame

# Modules of Python that check for a file: the innermost frames of a loop that polls without a pause. Since 3.11 some
# are frozen into the interpreter, and py-spy names them so.
_LOOKS_FOR = ("genericpath.py", "posixpath.py", "<frozen genericpath>", "<frozen posixpath>", "pathlib.py",
              "pathlib/__init__.py", "pathlib/_local.py", "pathlib/_abc.py", "glob.py", "threading.py", "selectors.py",
              "subprocess.py")
_NAMELESS = ("<genexpr>", "<listcomp>", "<lambda>")
_NAPS = ("nanosleep", "clock_nanosleep")      # time.sleep(): calls that only time ends
_NOBODY_WAKES = (*_NAPS, "futex")             # ... that no other process's message ends
MOST_STACKS = 64   # of those that wait, the commonest
LONG_S = 1.5   # a look of less than that sees many a rank asleep
FULL = 95.0    # per cent of the time that a GPU works
_OTHER_ROWS = (DATA, STORAGE, COMPILE)        # whose waits have rows and times of their own


class Asleep(NamedTuple):
    """Ranks that sleep where no other rank is, and all others. `is_busy`: some of these use a core, for polling."""

    odd: tuple[ObservedRank, ...]
    rest: tuple[ObservedRank, ...]
    is_busy: bool = False


def find_asleep(ranks: Sequence[ObservedRank]) -> Asleep | None:
    """A few ranks that have not run during a check, beside others that have; None = no such case. Slow loops sleep
    through a short check too, at a line where others that poll were seen. Where a rank computes, those that sleep may
    wait for it, except in a sleep that only its own time ends.
    """
    awake = [rank for rank in ranks if rank.ran]
    if not awake or any(rank.is_gone or rank.is_stopped for rank in ranks):
        return None
    stacks = _Stacks()
    known = {stacks.normal(sample) for rank in awake for sample in rank.samples}
    odd = tuple(rank for rank in ranks if _sleeps(rank) and _stands_apart(rank, known, stacks))
    if not odd or len(odd) * 2 > len(ranks):
        return None
    chosen = {(rank.node, rank.pid) for rank in odd}
    rest = tuple(rank for rank in ranks if (rank.node, rank.pid) not in chosen)
    is_busy = any(_is_busy(rank) and not polls(rank, stacks) for rank in rest)
    if is_busy and not all(map(naps, odd)):
        return None
    is_clear = len(odd) * 2 <= len(rest) and all(_observed_s(rank) >= LONG_S for rank in odd)
    if not is_clear and not all(_call_of(rank) in _NOBODY_WAKES for rank in odd):
        return None
    return Asleep(odd, rest, is_busy)


class _Stacks:
    """Normalised stacks, each worked out once: a hundred thousand ranks have few different ones."""

    def __init__(self) -> None:
        self._normal: dict[Stack, Stack] = {}
        self._frames: dict[str, str] = {}

    def normal(self, stack: Stack) -> Stack:
        """The stack as it would be in any other rank's process."""
        found = self._normal.get(stack)
        if found is None:
            found = self._normal[stack] = normalise(stack, self._frames)
        return found


def _is_busy(rank: ObservedRank) -> bool:
    """Whether it uses a core, or would: of two cores with fifteen programs on them it gets a tenth."""
    return computes(rank) or rank.states.count("R") * 2 > len(rank.states)


def _sleeps(rank: ObservedRank) -> bool:
    return rank.ran is False and not computes(rank) and not rank.gpu_util and not (
        rank.samples and classify(rank.samples[-1]).kind in _OTHER_ROWS)


def _stands_apart(rank: ObservedRank, known: set[Stack], stacks: _Stacks) -> bool:
    places = {stacks.normal(sample) for sample in rank.samples}
    return len(places) <= 1 and places.isdisjoint(known)


def naps(rank: ObservedRank) -> bool:
    """Whether it is in a sleep of the program's own code, which neither a message nor a thread ends."""
    return bool(rank.samples) and _call_of(rank) in _NAPS and classify(rank.samples[-1]).kind == USER


def rests(rank: ObservedRank) -> bool:
    """Whether a sleep was its call in this check: of a loop that polls, or one that lasts."""
    return _call_of(rank) in _NAPS


def verdict_on_naps(ranks: Sequence[ObservedRank]) -> HangVerdict | None:
    """A few ranks in a sleep that only its own time ends, while all others wait without one; None = no such case.

    Seen: a rank asleep in a sleep of its own, the other in DistributedDataParallel's backward pass, with gloo, where no
    collective is on the stack.
    """
    if not ranks or any(rank.is_gone or rank.is_stopped or rank.ran is not False or not rank.samples for rank in ranks):
        return None
    odd = [rank for rank in ranks if naps(rank)]
    rest = [rank for rank in ranks if _call_of(rank) not in (*_NAPS, "")]
    if not odd or len(odd) * 2 > len(ranks) or len(odd) + len(rest) < len(ranks):
        return None
    sleeps, wait = "sleeps" if len(odd) == 1 else "sleep", "waits" if len(rest) == 1 else "wait"
    there = _where(rest[0])
    return HangVerdict("deadlock", f"{names_of(odd)} {sleeps} in {_where(odd[0])}, while {names_of(rest)} {wait} in "
                       f"{there}", 0.5, tuple(odd_one(
                           rank, f"sleeps in {_where(rank)}, while the others wait in {there}") for rank in odd))


def slept_on(asleep: Asleep, earlier: Sequence[ObservedRank]) -> bool:
    """Whether the sleeping ranks have not run since an earlier check of the same processes either."""
    before = {(rank.node, rank.pid): rank for rank in earlier}
    return all(has_slept_since(rank, before.get((rank.node, rank.pid))) for rank in asleep.odd)


def has_slept_since(rank: ObservedRank, earlier: ObservedRank | None) -> bool:
    """Whether its main thread has not run since an earlier check of the same process."""
    return _switches(earlier) == _switches(rank) is not None


def _switches(rank: ObservedRank | None) -> float | None:
    return rank.life[-1].switches if rank is not None and rank.life else None


def polls(rank: ObservedRank, stacks: _Stacks) -> bool:
    """Whether it runs in one loop that checks for a file or flag, by its samples."""
    seen = [stacks.normal(sample) for sample in rank.samples]
    return len(seen) > 2 and is_in_one_loop(seen) and any(is_look(stack[0]) for stack in seen)


def is_in_one_loop(stacks: Iterable[Stack]) -> bool:
    """Whether all these normalised stacks are in one loop of one function, or in what that calls to look."""
    loops = {_loop(stack) for stack in stacks}
    return len(loops) == 1 and () not in loops


def _loop(stack: Stack) -> Stack:
    """The stack from the function with the loop on, without the line at which that is."""
    start = next((at for at, frame in enumerate(stack) if not is_look(frame) and not _is_nameless(frame)), None)
    return () if start is None else (" ".join(split_frame(stack[start])), *stack[start + 1:])


def is_look(frame: str) -> bool:
    """Whether Python's own modules check for a file or a flag here."""
    return split_frame(frame)[1] in _LOOKS_FOR


def _is_nameless(frame: str) -> bool:
    return split_frame(frame)[0].endswith(_NAMELESS)   # "Trainer.train_step.<locals>.<genexpr>"


def verdict_on_sleepers(asleep: Asleep) -> HangVerdict:
    """For people: the line of each, and where the others are, if their stacks could be read."""
    has, sleeps = ("has", "sleeps") if len(asleep.odd) == 1 else ("have", "sleep")
    often = Counter(sample for rank in asleep.rest for sample in rank.samples).most_common(MOST_STACKS)
    places: Counter[str] = Counter()
    for sample, times in often:
        places[_place(sample)] += times
    common = places.most_common(1)
    place = f" in {common[0][0]}" if common else ""
    do = ("work or poll" if asleep.is_busy else "wait in a loop") + place
    rest = f"{len(asleep.rest)} ranks that {do}"
    if len(asleep.rest) == 1:
        rest = f"{asleep.rest[0].name}, which {'works or polls' if asleep.is_busy else 'waits in a loop'}{place}"
    is_short = any(_observed_s(rank) < LONG_S for rank in asleep.odd)
    sure = 0.4 if asleep.is_busy or is_short else 0.7 if asleep.odd[0].samples else 0.5
    where = _where(asleep.odd[0])
    return HangVerdict(
        "deadlock",
        f"{names_of(asleep.odd)} {sleeps} in {where} and {has} not run during the look, unlike {rest}", sure,
        tuple(odd_one(rank, f"sleeps in {_where(rank)}, unlike the others, which {do}") for rank in asleep.odd))


def _observed_s(rank: ObservedRank) -> float:
    return rank.life[-1].t - rank.life[0].t if rank.life else 0.0


def _where(rank: ObservedRank) -> str:
    """Its place, or the kernel's word where its stack could not be read."""
    return (_place(rank.samples[-1]) if rank.samples else "") or _call_of(rank) or "an unknown call"


def _place(stack: Stack) -> str:
    """As people are told it: what it is at, and the innermost line of the program's own."""
    frames = normalise(stack)
    own = tuple(frame for frame in frames if not is_look(frame) and not _is_nameless(frame))
    return tell_place(own) or (frames[0] if frames else "")


def _call_of(rank: ObservedRank) -> str:
    return rank.main.call or rank.main.wchan if rank.main is not None else ""


def tell_busy(ranks: Sequence[ObservedRank]) -> str:
    """What ranks do that stand in one place, as the end of a sentence; "" = nothing."""
    if all((rank.gpu_util or 0.0) >= FULL for rank in ranks):   # seen on an H100: a kernel that never ended
        return "; all of their GPUs work without a pause: a kernel does not end, or waits for another rank"
    return "; they ran in between, and may be busy" if any(rank.ran for rank in ranks) else ""
