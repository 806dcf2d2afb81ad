"""What many nodes measured (node.bench), compared: which are slow, which failed, and of which nothing can be said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from safelaunch.base.numbers import figure, percent
from safelaunch.base.plaintext import clean, columns
from safelaunch.nodehealth.checks.results import FAILED, OK, CheckReport, CheckResult
from safelaunch.nodehealth.pairs import BusVerdict, NodeLink
from safelaunch.nodehealth.slow.fleet import NodeScore, judge_fleet, measured_again
from safelaunch.slurm import nodefold

# Rates that depend on who else uses the disk just then: a node is not called slow by them.
SHARED = frozenset(("disk_write", "disk_read"))
SHOWN = ("matmul", "gpu_memory", "memory", "disk_write", "disk_read")


class Speed(Enum):
    """What the measurements say of a node, the worst first."""

    NO_ANSWER = "no answer"
    FAILED = "failed"
    SLOW = "slow"
    UNKNOWN = "unknown"   # nothing was measured, or there is nothing to compare it with
    GOOD = "good"


class Kind(NamedTuple):
    """What is compared: the same measurement, of the same path, on the same kind of device."""

    name: str
    item: str
    device: str


class JudgedSpeed(NamedTuple):
    """A node, what is said of it and why, its rows of the first round, its scores by what was compared, its bus."""

    node: str
    speed: Speed
    reasons: tuple[str, ...]
    results: tuple[CheckResult, ...] = ()
    scores: Mapping[Kind, NodeScore] = {}
    link: NodeLink | None = None


def rates_of(reports: Iterable[CheckReport]) -> dict[Kind, dict[str, float]]:
    """What was measured: kind → node → rate."""
    found: dict[Kind, dict[str, float]] = {}
    for report in reports:
        for result in report.results:
            rate = result.number("value")
            if result.outcome == OK and rate is not None and rate > 0:
                kind = Kind(result.name, result.item, str(result.facts.get("device", ""))[:120])
                found.setdefault(kind, {})[report.node] = rate
    return found


def measure_again(
    rounds: Sequence[Sequence[CheckReport]], tolerance: float
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(nodes, names of the measurements) for one more round; () and () where these rounds tell enough."""
    nodes: set[str] = set()
    names: set[str] = set()
    rated = [rates_of(one) for one in rounds]
    for kind in rated[0]:
        known = [one[kind] for one in rated if kind in one]
        is_open = kind.name not in SHARED and kind in rated[-1]
        again = measured_again(known, tolerance) if is_open else ()
        nodes.update(again)
        names.update((kind.name,) if again else ())
    return tuple(report.node for report in rounds[0] if report.node in nodes), tuple(sorted(names))


def judge_speed(rounds: Sequence[Sequence[CheckReport]], silent: Mapping[str, str],
                tolerance: float) -> tuple[JudgedSpeed, ...]:
    """All nodes, the worst first. `silent`: node → why it gave no answer."""
    rated = [rates_of(one) for one in rounds]
    scores: dict[str, dict[Kind, NodeScore]] = {}
    for kind in rated[0] if rated else ():
        for score in judge_fleet([one[kind] for one in rated if kind in one], tolerance):
            scores.setdefault(score.node, {})[kind] = score
    found = [JudgedSpeed(node, Speed.NO_ANSWER, (why,)) for node, why in silent.items()]
    found += [_judge_one(report, scores.get(report.node, {}), silent) for report in (rounds[0] if rounds else ())
              if report.node not in silent]
    order = list(Speed)
    return tuple(sorted(found, key=lambda one: order.index(one.speed)))


def add_links(nodes: Sequence[JudgedSpeed], links: Mapping[str, NodeLink]) -> tuple[JudgedSpeed, ...]:
    """The same with what pairs of nodes say: a badly connected node is slow."""
    found = [_add_link(one, links[one.node]) if one.node in links else one for one in nodes]
    order = list(Speed)
    return tuple(sorted(found, key=lambda one: order.index(one.speed)))


def _add_link(one: JudgedSpeed, link: NodeLink) -> JudgedSpeed:
    speed, reasons = one.speed, one.reasons
    is_measured = any(result.outcome == OK for result in one.results)
    if link.link == BusVerdict.BAD and order_of(Speed.SLOW) < order_of(speed):
        speed = Speed.SLOW
    elif link.link == BusVerdict.UNKNOWN and link.is_suspected and speed == Speed.GOOD:
        speed = Speed.UNKNOWN
    elif link.link == BusVerdict.GOOD and speed == Speed.UNKNOWN and not is_measured:
        speed, reasons = Speed.GOOD, ()
    told = (link.why,) if link.why and (link.link != BusVerdict.UNKNOWN or link.is_suspected) else ()
    if speed == Speed.SLOW and one.speed == Speed.UNKNOWN and not is_measured:
        reasons = ()   # that nothing else was measured is no reason
    return one._replace(speed=speed, reasons=(*reasons, *told), link=link)


def order_of(speed: Speed) -> int:
    """0 is the worst."""
    return list(Speed).index(speed)


def _judge_one(report: CheckReport, scores: Mapping[Kind, NodeScore], silent: Mapping[str, str]) -> JudgedSpeed:
    failed = tuple(f"{result.title}: {result.why}" for result in report.results if result.outcome == FAILED)
    slow = tuple(f"{kind.name}: {percent(score.deficit)} slower than the others, z {score.z:.1f}"
                 for kind, score in scores.items() if score.is_slow and kind.name not in SHARED)
    reasons = failed + slow
    if failed:
        speed = Speed.FAILED
    elif slow:
        speed = Speed.SLOW
    elif all(kind.name in SHARED for kind in scores):
        rates = [result for result in report.results if result.outcome == OK]
        speed, reasons = Speed.UNKNOWN, report.notes or (
            "fewer than three nodes measured the same: nothing to compare with" if rates else "nothing was measured",)
    else:
        speed = Speed.GOOD
    return JudgedSpeed(report.node, speed, reasons, report.results, scores)


def speed_table(nodes: Sequence[JudgedSpeed]) -> list[str]:
    """Lines for people: each node's rates, its worst z, what is said of it, and why."""
    names = [name for name in SHOWN if any(_rates(one, name) for one in nodes)]
    bus = ("bus",) if any(one.link for one in nodes) else ()
    rows = [("node", *names, *bus, "z", "verdict", "why")]
    for one in nodes:
        worst = [score.z for kind, score in one.scores.items() if kind.name not in SHARED]
        rows.append((one.node, *(_rates(one, name) or "-" for name in names), *(_bus(one) for _ in bus),
                     f"{max(worst):.1f}" if worst else "-", one.speed.value, "; ".join(one.reasons) or "-"))
    return columns([tuple(map(clean, row)) for row in rows])


def next_commands(nodes: Sequence[JudgedSpeed]) -> list[str]:
    """What a person can type to keep slow nodes out of new attempts: nodes with the same reason share a line."""
    slow: dict[str, list[str]] = {}
    for one in nodes:
        if one.speed == Speed.SLOW:
            what = " and ".join(sorted(reason.replace(":", " ").split()[0] for reason in one.reasons))
            slow.setdefault(what, []).append(one.node)
    return [f'safelaunch nodes suspect {nodefold.fold(names)} --why "slow in nodes bench: {what}"'
            for what, names in slow.items()]


def _bus(one: JudgedSpeed) -> str:
    return f"{figure(one.link.gb_s)} GB/s" if one.link and one.link.gb_s is not None else "-"


def _rates(one: JudgedSpeed, name: str) -> str:
    """Of several paths the slowest."""
    found = [(rate, str(result.facts.get("unit", ""))) for result in one.results
             if result.name == name and result.outcome == OK and (rate := result.number("value")) is not None]
    return f"{figure(min(found)[0])} {min(found)[1]}" if found else ""
