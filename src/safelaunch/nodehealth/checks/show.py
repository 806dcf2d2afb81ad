"""How the checks are shown: a table of nodes, a table of one node's checks, and dated lines for a log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from safelaunch.base.plaintext import clean, columns
from safelaunch.nodehealth.checks import allreduce
from safelaunch.nodehealth.checks.judge import JudgedNodes, NodeState
from safelaunch.nodehealth.checks.results import FAILED, OK, OUTCOMES, SKIPPED, UNKNOWN, CheckReport, CheckResult
from safelaunch.slurm import nodefold

# (check, fact, words): what a log of nodes tells of each, whatever the outcome.
_FACTS = (("gpu_count", "count", "GPU Number"), ("gpu_model", "model", "GPU Type"),
          ("gpu_driver", "driver", "Driver Version"), ("gpu_driver", "cuda", "CUDA Version"),
          ("torch", "torch", "PyTorch Version"), ("torch", "nccl", "NCCL Version"))


def node_table(judged: JudgedNodes) -> list[str]:
    """Lines: a state, its nodes in short form, and why; nodes of the same state and reasons share a line."""
    groups: dict[tuple[NodeState, tuple[str, ...]], list[str]] = {}
    for one in judged.nodes:
        groups.setdefault((one.state, one.reasons), []).append(one.node)
    rows = [(state.value, nodefold.fold(nodes), "; ".join(reasons) or "-")
            for (state, reasons), nodes in groups.items()]
    rows += [(UNKNOWN, "-", tie) for tie in judged.ties]
    return _aligned([("state", "nodes", "why"), *rows])


def check_table(report: CheckReport) -> list[str]:
    """Lines: the outcome of each check of a node, how long it took, and why."""
    return _aligned([("check", "outcome", "took", "why"), *(
        (result.title, result.outcome, f"{result.took_s:.1f} s", result.why) for result in report.results)])


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Columns of which the last is as long as it is."""
    return columns([tuple(map(clean, row)) for row in rows])


def log_lines(report: CheckReport, stamp: str) -> list[str]:
    """A node's checks as lines of a log, each with the date `stamp`."""
    return [f"{stamp} {clean(line)}" for line in _lines(report)]


def _lines(report: CheckReport) -> Iterable[str]:
    yield f"Start to check {report.node}"
    told = {result.why for result in report.results if result.outcome == FAILED}   # of a tool that several need
    for result in report.results:
        if result.name == "rw" and result.item:
            yield from _disk_lines(result)
        elif result.name in (allreduce.NAME, allreduce.SLOW_NAME) and result.outcome != SKIPPED:
            yield f"AllReduce Check: {'Succeed' if result.outcome == OK else f'{result.outcome}: {result.why}'}"
            if (gb_s := result.number("gb_s")) is not None:
                yield f"AllReduce BusBW: {_rate(gb_s)}"
        elif result.outcome == FAILED or (result.outcome == UNKNOWN and result.why not in told):
            yield f"{result.title}: {result.outcome}: {result.why}"
        for check, fact, words in _FACTS:
            if result.name == check and isinstance(result.facts.get(fact), (str, int)):
                yield f"{words}: {str(result.facts[fact])[:200]}"
    yield from report.notes
    yield f"Check Finished, {summary(report)}"


def _disk_lines(result: CheckResult) -> Iterable[str]:
    read, write = result.number("read_gb_s"), result.number("write_gb_s")
    yield f"DiskTest {result.item}: " + ("Succeed" if result.outcome == OK else f"{result.outcome}: {result.why}")
    if read is not None and write is not None:
        yield f"{result.item} RW TEST: {_rate(read)} {_rate(write)}"


def _rate(gb_s: float) -> str:
    return f"{gb_s:.1f} GB/s" if gb_s >= 1 else f"{gb_s * 1000:.0f} MB/s"


def isolation(reports: Iterable[CheckReport]) -> str:
    """What a look of the level isolate says of hardware and program."""
    outcomes = {report.node: {result.name: result.outcome for result in report.results
                              if result.name.startswith("gpu_") or result.name == "dcgm"} for report in reports}
    if bad := [node for node, found in outcomes.items() if FAILED in found.values()]:
        return (f"{nodefold.fold(bad)}: something is wrong there without your program: show the site's administrators "
                "this table")
    right = [node for node, found in outcomes.items() if found.get("gpu_alone") == OK
             and found.get("gpu_together") in (OK, SKIPPED)]
    if not right:
        return "no GPU was tried: this says nothing of hardware or program"
    return (f"{nodefold.fold(right)}: the GPUs do known work right. Look at the program next: "
            "safelaunch submit --debug cuda (or trace, hang)")


def summary(report: CheckReport) -> str:
    """12 ok, 1 failed, 9 skipped."""
    counts = [(outcome, report.count(outcome)) for outcome in OUTCOMES]
    return ", ".join(f"{count} {outcome}" for outcome, count in counts if count) or "nothing was checked"
