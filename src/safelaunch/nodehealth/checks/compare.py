"""What differs between nodes that should be alike: the odd ones are named, and a tie names none."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from safelaunch.nodehealth.checks import clocks
from safelaunch.nodehealth.checks.results import OK, SKIPPED, CheckReport, CheckResult
from safelaunch.slurm import nodefold
from safelaunch.trainlog.figures import median

# (check, fact) → what people call it.
ALIKE: dict[tuple[str, str], str] = {
    ("gpu_count", "count"): "GPUs", ("gpu_model", "model"): "GPU model", ("gpu_driver", "driver"): "driver",
    ("gpu_driver", "cuda"): "the driver's CUDA", ("python", "python"): "Python", ("python", "digest"): "modules",
    ("torch", "torch"): "PyTorch", ("torch", "cuda"): "PyTorch's CUDA", ("torch", "nccl"): "NCCL",
    ("infiniband", "active"): "active ports",
}
RATES = {"read_gb_s": "reads", "write_gb_s": "writes"}   # of the check rw
# Of the median. Healthy nodes of a real training read 4.5 to 5.9 GB/s of one filesystem, and wrote 630 to 726 MB/s.
SLOW = 0.5
LEAST_NODES = 3      # below it nobody knows which of two is the slow one
SHOWN_MODULES = 5


class Difference(NamedTuple):
    """A node that stands apart from most others, and in what."""

    node: str
    why: str


class Compared(NamedTuple):
    """All differences, and the ties: where no value is held by more than half of the nodes."""

    differences: tuple[Difference, ...]
    ties: tuple[str, ...]


def compare(reports: Sequence[CheckReport]) -> Compared:
    """What differs between the nodes."""
    found: list[Difference] = []
    ties: list[str] = []
    for (check, fact), words in ALIKE.items():
        values = {report.node: value for report in reports for value in [_value(report, check, fact)]
                  if value is not None}
        if len(set(values.values())) < 2:
            continue
        usual, count = Counter(values.values()).most_common(1)[0]
        if count * 2 <= len(values):
            ties.append(_tie(words, values))
            continue
        like = next(node for node, value in values.items() if value == usual)
        found += [Difference(node, _unlike(reports, (check, fact), (node, like), count)) for node, value
                  in values.items() if value != usual]
    apart, tie = clocks.compare({report.node: report.clock for report in reports
                                 if report.clock is not None and _result(report, "clock") is not None})
    found += [Difference(node, why) for node, why in apart.items()]
    return Compared((*found, *_slow(reports)), (*ties, tie) if tie else tuple(ties))


def _result(report: CheckReport, check: str, item: str = "") -> CheckResult | None:
    return next((one for one in report.results if (one.name, one.item) == (check, item)), None)


def _value(report: CheckReport, check: str, fact: str) -> str | None:
    """The node's value as text; None = it is not known. A node that has nothing of the kind has "none"."""
    result = _result(report, check)
    if result is None:
        return None
    if result.outcome == SKIPPED:
        return "none"
    value = result.facts.get(fact)
    if value is None:
        return None
    return value[:200] if isinstance(value, str) else json.dumps(value, sort_keys=True)[:200]


def _unlike(reports: Sequence[CheckReport], place: tuple[str, str], nodes: tuple[str, str], count: int) -> str:
    """What the first node has, and what the second has as most do."""
    by_name = {report.node: report for report in reports}
    here, there = (by_name[node] for node in nodes)
    elsewhere = f"on {count} nodes" if count > 1 else f"on {nodes[1]}"
    if place == ("python", "digest"):
        return f"{_unlike_modules(here, there)} {elsewhere}"
    return f"{ALIKE[place]}: {_value(here, *place)}, but {_value(there, *place)} {elsewhere}"


def _modules(report: CheckReport) -> Mapping[str, object]:
    result = _result(report, "python")
    modules = result.facts.get("modules") if result is not None else None
    return modules if isinstance(modules, dict) else {}


def _unlike_modules(here: CheckReport, there: CheckReport) -> str:
    ours, theirs = _modules(here), _modules(there)
    unlike = [name for name in sorted({*ours, *theirs}) if ours.get(name) != theirs.get(name)]
    if not unlike:
        return "modules: others than"   # what differs was too long to be told
    pairs = [f"{name[:80]} {str(ours.get(name, 'missing'))[:40]}, but {str(theirs.get(name, 'missing'))[:40]}"
             for name in unlike[:SHOWN_MODULES]]
    more = f" and {len(unlike) - SHOWN_MODULES} more" if len(unlike) > SHOWN_MODULES else ""
    return f"modules: {'; '.join(pairs)}{more}"


def _tie(words: str, values: Mapping[str, str]) -> str:
    groups: dict[str, list[str]] = {}
    for node, value in values.items():
        groups.setdefault(value, []).append(node)
    said = ", ".join(f"{value} on {nodefold.fold(nodes)}" for value, nodes in sorted(groups.items()))
    return f"{words}: {said}: which is right is unknown"


def _slow(reports: Sequence[CheckReport]) -> list[Difference]:
    """Nodes that read or write a path at less than half of the rate of the middle one."""
    found = []
    paths = dict.fromkeys(result.item for report in reports for result in report.results if result.name == "rw")
    for path in paths:
        for fact, verb in RATES.items():
            rates = {report.node: rate for report in reports for result in [_result(report, "rw", path)]
                     if result is not None and result.outcome == OK for rate in [result.number(fact)]
                     if rate is not None}
            if len(rates) >= LEAST_NODES:
                middle = median([*rates.values()])
                found += [Difference(node, f"{verb} {path} at {rate:.3f} GB/s, the middle node at {middle:.3f}")
                          for node, rate in rates.items() if rate < SLOW * middle]
    return found
