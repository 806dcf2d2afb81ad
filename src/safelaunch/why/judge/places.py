"""Where a failure began: the host and the rank that the cause names, the launcher's summary, or the lines beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from safelaunch.why.categories import ENDS_OF_JOBS
from safelaunch.why.findings import Finding, Line, Log
from safelaunch.why.judge.lastlines import messages_of
from safelaunch.why.order.episodes import Episode
from safelaunch.why.read import fields
from safelaunch.why.verdict import Verdict
from safelaunch.why.weigh.groups import FindingGroup, culprit_rank

# What a launcher prints under its own prefix about one of its ranks.
LAUNCHERS_WORDS = ("native.elastic_signal", "native.elastic_code", "native.elastic_term", "native.abort_code",
                   "memory.sigkill_elastic")
# How srun reports the end of a task that it did not end itself.
EXIT_REPORTS = ("slurm.task_exit", "slurm.task_signal", "slurm.task_aborted", "memory.srun_killed",
                "memory.slurm_task_oom")
SUMMARY_BYTES = 600     # torchrun's summary of one failed rank is shorter
OF_PORTS = ("rendezvous", "network")
NEAR_LINES = 8          # around a line that names no host


class Report(NamedTuple):
    """What a launcher says of a process that ended badly."""

    line: Line
    told: fields.Fields


def first_report(episode: Episode, log: Log) -> Report | None:
    """The first report on a process that ended badly: by itself before by a SIGTERM. A signal may stand below it."""
    reports = [Report(line, told) for line in messages_of(episode, log) if fields.is_report(line.text)
               and ((told := fields.read_fields(line.text)).code or told.signal)]
    bare = [one for one in reports if one.told.host is None and one.told.rank is None]
    first = min(reports, key=lambda one: (one.told.signal == fields.TERM, one in bare), default=None)
    signal = next((one.told.signal for one in bare), None)
    return first and first._replace(told=first.told._replace(signal=first.told.signal or signal))


def complete(verdict: Verdict, groups: Sequence[FindingGroup], episode: Episode, log: Log) -> Verdict:
    """The verdict with a place where its own line names none: of a launcher's summary, whoever prints it, of the only
    host that the lines around it name, or of the only one that speaks at all.
    """
    cited = verdict.cause or next(iter(verdict.cited), None)
    if verdict.category == "none" or verdict.category in ENDS_OF_JOBS or cited is None:
        return verdict
    report = first_report(episode, log)
    host, rank, _ = _first_failure(episode)
    if report is not None and (host is None or verdict.host not in (None, host)):
        host, rank = report.told.host, None if _is_launchers_task(report.line, groups, episode) else report.told.rank
    if verdict.host is not None:
        return replace(verdict, rank=rank) if host == verdict.host and verdict.rank is None else verdict
    if host is None:
        lines = [line for line in log.last if log.files[line.file] == cited.file]
        near = [line for number, line in enumerate(lines)
                if cited.offset in {one.offset for one in lines[max(0, number - NEAR_LINES):number + NEAR_LINES + 1]}]
        named = {name for line in near if (name := fields.read_fields(line.text).host) is not None} or {
            name for group in groups for name in group.hosts}
        named -= _reporters(verdict.rank, groups)
        host = named.pop() if len(named) == 1 else None
    blamed = (host,) if host is not None and verdict.action == "exclude_and_restart" else ()
    return replace(verdict, host=host, rank=verdict.rank if verdict.rank is not None else rank,
                   suspects=verdict.suspects or blamed)


def name_objects(verdict: Verdict, log: Log) -> Verdict:
    """The verdict with the port or the file that its cause is about; the port may stand in a line near it."""
    cited = verdict.cause or next(iter(verdict.cited), None)
    if cited is None or verdict.category == "none":
        return verdict
    own, near = fields.read_objects(cited.text), (line.text for line in log.last if log.files[line.file] == cited.file
                                                  and abs(line.offset - cited.offset) < SUMMARY_BYTES)
    ports = (fields.read_objects(text).port for text in near)
    port = (own.port or next(filter(None, ports), None)) if verdict.category in OF_PORTS else None
    return replace(verdict, port=port, file=verdict.file or own.file)


def asked_to(verdict: Verdict) -> Verdict:
    """A node that nobody can name cannot be left out."""
    if verdict.action != "exclude_and_restart" or verdict.suspects or verdict.host is not None:
        return verdict
    return replace(verdict, action="restart",
                   notes=(*verdict.notes, "it looks like one node's fault, and nothing names the node"))


def culprit(chosen: FindingGroup, groups: Sequence[FindingGroup], episode: Episode) -> tuple[str | None, int | None]:
    """Host and rank of the cause: its own, else those of another line of its kind, else of the launcher's summary."""
    host = chosen.hosts[0] if chosen.hosts else None
    rank = chosen.ranks[0] if chosen.ranks else None
    if host is None and rank is None:   # slurmstepd counts the kills, srun names the task
        alike = [group for group in groups if group.role == "cause" and group.category == chosen.category]
        host = next((group.hosts[0] for group in alike if group.hosts), None)
        rank = next((group.ranks[0] for group in alike   # torchrun's own words have the rank on its node
                     if group.ranks and group.rule.id not in LAUNCHERS_WORDS), None)
    if host is None or rank is None or chosen.rule.id in LAUNCHERS_WORDS:
        named = _first_failure(episode)
        if host is None and rank is not None and rank == named[2]:   # "[default1]:" of a node that only torchrun names
            rank = named[1]
        if chosen.rule.id in LAUNCHERS_WORDS:   # printed by a launcher under its own prefix
            host, rank = named[0] or host, named[1] if named[1] is not None else rank
        else:
            host, rank = host or named[0], rank if rank is not None else named[1]
    if host is None and chosen.category not in ENDS_OF_JOBS:
        host, task = _first_exit(groups)
        if host in _reporters(rank, groups):
            host = None
        # With a launcher below it, srun's task is a node, not a rank.
        rank = rank if rank is not None or _has_launcher(groups) else task
    return host, rank


def _first_exit(groups: Sequence[FindingGroup]) -> tuple[str | None, int | None]:
    """Host and number of the task whose end srun reports first: it reports them in the order in which they end."""
    for group in groups:
        if group.rule.id in EXIT_REPORTS and group.hosts:
            return group.hosts[0], culprit_rank(group.rule, group.first)
    return None, None


def _reporters(rank: int | None, groups: Sequence[FindingGroup]) -> frozenset[str | None]:
    """Hosts whose own tasks ended as well, where the cause names another rank: they only tell of it."""
    host, task = _first_exit(groups)
    is_other = rank is not None and task is not None and rank != task and not _has_launcher(groups)
    return frozenset((host,) if is_other else ())


def _is_launchers_task(line: Line, groups: Sequence[FindingGroup], episode: Episode) -> bool:
    """Whether it tells of a task of srun's with a launcher below it: that is a node, and its number is no rank's."""
    return _has_launcher(groups) and any("task" in found.groups and found.offset == line.offset
                                         for found in episode.findings)


def _has_launcher(groups: Sequence[FindingGroup]) -> bool:
    """Whether torchrun or its like speaks in the log."""
    return any(group.rule.id.startswith("elastic.") or group.rule.id in LAUNCHERS_WORDS for group in groups)


def first_failed(group: FindingGroup, episode: Episode) -> FindingGroup:
    """A launcher's words about its ranks, led by those about the rank that it says failed first: it lists that last."""
    if group.rule.id in LAUNCHERS_WORDS and any(
            0 < group.last.offset - found.offset < SUMMARY_BYTES for found in episode.findings
            if found.rule == "elastic.root_cause" and found.file == group.last.file):
        return replace(group, first=group.last)
    return group


def _first_failure(episode: Episode) -> tuple[str | None, int | None, int | None]:
    """Host, rank and number on the host under torchrun's "Root Cause (first observed failure)"."""
    host: str | None = None
    rank: int | None = None
    number: int | None = None
    begun: Finding | None = None
    for found in episode.findings:
        if found.rule == "elastic.root_cause" and begun is None:
            begun = found
        elif begun is not None and found.file == begun.file and found.offset - begun.offset < SUMMARY_BYTES:
            if found.rule == "elastic.host_line":
                host = host or found.groups.get("host")
            elif found.rule == "elastic.rank_line" and rank is None:
                rank, number = int(found.groups["rank"]), int(found.groups["number"])
    return host, rank, number
