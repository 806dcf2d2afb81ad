"""safelaunch nodes bench --plan: which nodes to leave out of the next job, where only jobs can be started."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from safelaunch.core import nodefold
from safelaunch.core.slow.grouptest import GroupPlan, GroupSearch, Trial, plan_next
from safelaunch.errors import UsageError
from safelaunch.views import talk

HOW = "write NODES=SECONDS, or NODES=back, NODES=slow, such as n[1-3]=105.3"
MOST_LINES = 10_000


@dataclass(frozen=True)
class AskedPlan:
    """What was typed."""

    nodes: tuple[str, ...]
    spares: int
    normal_s: float
    slow_s: float
    noise: float
    results: tuple[str, ...]
    file: str | None


def plan_restarts(asked: AskedPlan, names_of: Callable[[str], tuple[str, ...]], as_json: bool) -> int:
    """The exit code; raises UsageError."""
    if len(asked.nodes) < 2:
        raise UsageError("--plan needs the nodes of the job", hint="safelaunch nodes bench --plan 'n[1-48]' …")
    if not all(map(math.isfinite, (asked.normal_s, asked.slow_s, asked.noise))):
        raise UsageError("--normal, --slow and --noise are numbers")
    if asked.slow_s <= asked.normal_s:
        raise UsageError("--slow is not more than --normal: seconds a step with all nodes, and before")
    search = GroupSearch(asked.nodes, asked.spares, asked.normal_s, asked.slow_s, asked.noise)
    trials = tuple(_trial(line, search, names_of) for line in (*asked.results, *_lines(asked.file)))
    found = plan_next(replace(search, trials=trials))
    if as_json:
        talk.emit_json({"v": 1, "jobs": len(trials), "leave_out": list(found.leave_out), "culprit": found.culprit,
                        "none_is_slow": found.is_nobody, "probability": round(found.probability, 5),
                        "may_be_slow": found.left, "most_jobs_left": found.most_left})
    else:
        for line in tell(found, len(trials)):
            talk.say(line)
    return 0


def tell(plan: GroupPlan, jobs: int) -> list[str]:
    """Lines for people."""
    if plan.culprit is not None:
        return [f"{plan.culprit} slows the others down (probability {plan.probability:.3f}, after {jobs} jobs)",
                f'to keep it out: safelaunch nodes suspect {plan.culprit} --why "slow: found in {jobs} jobs"']
    if plan.is_nobody:
        return [f"no node of these slows the others down (probability {plan.probability:.3f}, after {jobs} jobs)"]
    group = nodefold.fold(plan.leave_out)
    return [f"leave out of the next job: {group} ({plan.left} nodes may be slow; {plan.most_left} jobs at most are "
            "needed, if no result is doubtful)",
            f"then the same again, with --result '{group}=SECONDS', the median of its step times"]


def _lines(file: str | None) -> Iterable[str]:
    if file is None:
        return ()
    try:
        text = Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--results: {file} cannot be read: {error}") from error
    lines = [line.strip() for line in text.splitlines()[:MOST_LINES]]
    return [line for line in lines if line and not line.startswith("#")]


def _trial(line: str, search: GroupSearch, names_of: Callable[[str], tuple[str, ...]]) -> Trial:
    nodes, found, said = line.rpartition("=")
    if not found:
        raise UsageError(f"not a result: {line[:80]!r}", hint=HOW)
    left_out = names_of(nodes.strip())
    if strangers := [node for node in left_out if node not in search.nodes]:
        raise UsageError(f"{strangers[0]} is not one of the job's nodes", hint=HOW)
    words = {"back": search.normal_s, "slow": search.slow_s}
    try:
        seconds = words[said.strip()] if said.strip() in words else float(said)
    except ValueError as error:
        raise UsageError(f"not a result: {line[:80]!r}", hint=HOW) from error
    if not 0 < seconds < 1e9:
        raise UsageError(f"not a time of a step: {said.strip()[:40]}", hint=HOW)
    return Trial(left_out, seconds)
