"""What is known of an attempt's end beside its log, put together in one way: for its supervisor, and for `why`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from safelaunch.base.endings import AttemptEnd
from safelaunch.base.model import Event
from safelaunch.slurm import nodefold
from safelaunch.why.findings import EndFacts, OutsideEvidence, RankLayout, TaskExit

BESIDE_A_LOG = 0.6   # that stacks show a hang, where nobody has ended the attempt for it


class Stacks(NamedTuple):
    """What looks at the ranks of a silent attempt showed (hangs), as far as it speaks of a hang."""

    odd: tuple[tuple[str, str], ...]   # (node or "", which rank and where it stands)
    said: str
    confidence: float
    rank: int | None = None            # the first odd one's number
    suspects: tuple[str, ...] = ()


def stacks_of(odd: Iterable[tuple[str, int | None, str]], suspects: Sequence[str], said: str,
              confidence: float) -> Stacks:
    """The same from the odd ranks (node or "", number, where it stands) and the nodes that are suspected."""
    ranks = tuple(odd)
    lines = [(node, f"rank {number}: {why}") for node, number, why in ranks]
    lines += [(node, "its node is suspected") for node in suspects if node not in dict(lines)]
    first = next((number for node, number, _ in ranks[:1] if node), None)
    return Stacks(tuple(lines) or (("", said),), said, confidence, first, tuple(suspects))


def know(end: EndFacts, exits: tuple[TaskExit, ...] = (), srun_code: int | None = None, *,
         lost: tuple[tuple[str, str], ...] = (), stacks: Stacks | None = None, is_hang: bool = False,
         asked_bytes: int | None = None, ledger: Mapping[str, int] | None = None,
         layout: RankLayout | None = None) -> OutsideEvidence:
    """What counts of that. `is_hang`: its supervisor has ended it for one, so that its exits say nothing; srun's code
    says something only where no task's does, and comes late. `asked_bytes`: how long its log was by then.
    """
    exits = () if is_hang else exits
    return OutsideEvidence(
        exits=exits, lost=lost if end.how == AttemptEnd.LOST else (), end=end, ledger=ledger or {}, is_hang=is_hang,
        srun_code=None if is_hang or any(exit.code or exit.signal for exit in exits) else srun_code,
        stacks=stacks.odd if stacks else (), stacks_rank=stacks.rank if stacks else None,
        stacks_said=stacks.said if stacks and is_hang else "", stacks_suspects=stacks.suspects if stacks else (),
        stacks_sure=stacks.confidence if stacks and is_hang else BESIDE_A_LOG,
        own_term_bytes=(asked_bytes or 0) if end.sent_signals else None, layout=layout)


class ChecksAfter(NamedTuple):
    """What node checks after a failed attempt have shown: suspects that failed the full ones, and all in words."""

    failed: tuple[tuple[str, tuple[str, ...], str], ...] = ()   # (node, names of checks, why)
    lines: tuple[str, ...] = ()


def checks_after(journal: Sequence[Event], attempt: int) -> ChecksAfter:
    """The same, from the journal. Light checks are told and are no witness: they look at nodes that nobody suspects."""
    failed: list[tuple[str, tuple[str, ...], str]] = []
    lines: list[str] = []
    for event in journal:
        if event.event not in ("checks_passed", "checks_failed") or event.data.get("after") != attempt:
            continue
        nodes, unknown = (tuple(map(str, event.data.get(key) or ())) for key in ("nodes", "unknown"))
        is_full, why = event.data.get("level") == "full", str(event.data.get("why", ""))
        level = "full checks" if is_full else "light checks"
        if event.event == "checks_failed":
            names = tuple(str(title).split()[0] for title in event.data.get("checks") or () if str(title).strip())
            failed += [(node, names, why) for node in nodes if is_full]
            lines.append(f"{nodefold.fold(nodes)}: {level} after it have failed: {why}")
        elif nodes and is_full:
            lines.append(f"{nodefold.fold(nodes)}: {level} after it have passed, which clears no suspect")
        if unknown:
            lines.append(f"{nodefold.fold(unknown)}: could not be checked after it")
    return ChecksAfter(tuple(failed), tuple(lines))
