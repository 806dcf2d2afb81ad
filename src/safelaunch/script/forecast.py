"""What a submission would take, as rows for the person who is about to send it. Facts in, (label, text, style) out."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from safelaunch.run.plan import Plan
from safelaunch.script.script import time_limit_s

MOST_EXCLUDED = 3
_START = re.compile(r"to start at (?P<start>[0-9]{4}-[0-9-]{5}T[0-9:]{8})\b.{0,80}?(?: on nodes? (?P<nodes>\S{1,400}))?"
                    r"(?: in partition (?P<partition>\S{1,200}))?$", re.MULTILINE)


class ExpectedStart(NamedTuple):
    """What `sbatch --test-only` said; all "" = nobody knows, for the reason in `trouble`."""

    start: str = ""         # 2026-11-25T08:14:35, in the cluster's zone
    nodes: str = ""
    partition: str = ""
    refusal: str = ""       # Slurm would not take the job
    trouble: str = ""


class SubmissionFacts(NamedTuple):
    """All that is known before a job is sent; None = nobody knows. `excluded`: (node, why). `commit`: "" = this is no
    repository. `dirty`: how many files differ from the commit; `is_cut`: at least, of a diff that is too long to keep.
    """

    size: str                                             # 16 nodes × 8 GPUs, torchrun × 8, …
    resumes: tuple[str, ...]
    excluded: tuple[tuple[str, str], ...] | None
    start: ExpectedStart
    commit: str | None = None
    dirty: int = 0
    is_cut: bool = False


def parse_test_only(said: str, is_ok: bool) -> ExpectedStart:
    """The answer of `sbatch --test-only`, which comes on stderr."""
    found = _START.search(said[:1 << 16])
    if is_ok and found is not None:
        return ExpectedStart(found["start"], found["nodes"] or "", found["partition"] or "")
    words = " ".join(said.split())[:300]
    if is_ok:
        return ExpectedStart(trouble=f"sbatch --test-only said {words!r}")
    return ExpectedStart(refusal=words or "sbatch --test-only failed without a word")


def changed_files(diff: str) -> int:
    """How many files a diff of git is about."""
    return len(re.findall("^diff --git ", diff, re.MULTILINE))


def rows(plan: Plan, facts: SubmissionFacts, span: Callable[[float], str]) -> list[tuple[str, str, str]]:
    """The plan, for a terminal; `span` says a length of time in words."""
    return [("run", facts.size, ""), *_fewer(plan, span), *_cost(plan, span), *_resumes(facts), _excluded(facts),
            _starts(facts.start), *_tree(facts)]


def _fewer(plan: Plan, span: Callable[[float], str]) -> list[tuple[str, str, str]]:
    """With how few nodes it may go on, and what comes before that."""
    if plan.min_nodes is None:
        return []
    step = f", a multiple of {plan.nodes_multiple_of}" if plan.nodes_multiple_of > 1 else ""
    hook = "after before_resize has converted the checkpoint" if plan.before_resize else (
        "from the checkpoint as it is: there is no before_resize")
    return [("nodes", f"{plan.nodes}; from {plan.min_nodes} on{step}, where no full set can be had within "
             f"{span(plan.restart.wait_for_nodes_s)}, {hook}", "")]


def _cost(plan: Plan, span: Callable[[float], str]) -> list[tuple[str, str, str]]:
    """GPU hours of one job, of all jobs if every restart needs a new job, and the bounds of the run."""
    unit, per_node = ("GPU hours", plan.gpus_per_node) if plan.gpus_per_node else ("node hours", 1)
    size, spares = plan.allocated_nodes * per_node, f" and {plan.spare_nodes} spare" if plan.spare_nodes else ""
    limit_s, most, most_s = time_limit_s(dict(plan.sbatch).get("time")), plan.restart.max_jobs, plan.restart.max_time_s
    job = f"unknown {unit}: slurm.time is not set, so the partition's limit counts"
    bounds: list[tuple[float, str]] = [] if most_s is None else [(size * most_s / 3600, (
        f"{span(most_s)} of running (restart.max_time)"))]
    if limit_s:
        hours = size * limit_s / 3600
        restarts = plan.restart.max_restarts
        job = (f"{_number(hours)} {unit} a job ({plan.nodes}{spares} nodes, {span(limit_s)}); "
               f"{_number(hours * (restarts + 1))} if each of {restarts} restarts takes a job of its own")
        bounds += [] if most is None else [(hours * most, f"{most} jobs (restart.max_jobs)")]
    told = ("without end, as long as its jobs bring it further: a time limit costs no restart. A bound: "
            "restart.max_jobs, restart.max_time")
    if bounds:
        told = f"{_number(min(bounds)[0])} {unit}, by {min(bounds)[1]}"
    elif most is not None:
        told = f"{most} jobs (restart.max_jobs)"
    return [("at most", job, "bold"), ("in all", told, "" if bounds or most is not None else "bold")]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _resumes(facts: SubmissionFacts) -> list[tuple[str, str, str]]:
    return [("resume" if number == 0 else "", line, "") for number, line in enumerate(facts.resumes)]


def _excluded(facts: SubmissionFacts) -> tuple[str, str, str]:
    if facts.excluded is None:
        return ("excluded", "unknown: the ledger of nodes does not answer", "yellow")
    if not facts.excluded:
        return ("excluded", "no node", "")
    shown = "; ".join(f"{node} ({why})" for node, why in facts.excluded[:MOST_EXCLUDED])
    more = len(facts.excluded) - MOST_EXCLUDED
    return ("excluded", shown + (f"; and {more} more: safelaunch nodes" if more > 0 else ""), "")


def _starts(start: ExpectedStart) -> tuple[str, str, str]:
    if start.refusal:
        return ("start", f"Slurm would refuse it: {start.refusal}", "bold red")
    if not start.start:
        return ("start", f"unknown: {start.trouble}", "yellow")
    where = f" on {start.nodes}" if start.nodes else ""
    where += f" in partition {start.partition}" if start.partition else ""
    return ("start", f"{start.start.replace('T', ' ')}{where}, as the queue is now", "")


def _tree(facts: SubmissionFacts) -> list[tuple[str, str, str]]:
    if facts.commit is None:
        return [("git", "unknown: git took too long", "yellow")]
    if not facts.commit:
        return []
    short = facts.commit[:12]
    if not facts.dirty:
        return [("git", f"commit {short}", "")]
    files = "1 file differs" if facts.dirty == 1 else f"{facts.dirty} files differ"
    if facts.is_cut:
        return [("git", f"commit {short}, and at least {files} from it: the difference is too long, and only its start "
                 "is kept with the run", "yellow")]
    return [("git", f"commit {short}, and {files} from it: the difference is kept with the run", "yellow")]
