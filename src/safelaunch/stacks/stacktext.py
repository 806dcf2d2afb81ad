"""What `safelaunch stacks` shows, as text and as a JSON object; what `why` prints of a hang."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from safelaunch.base.model import Silent
from safelaunch.base.plaintext import LABEL_WIDTH
from safelaunch.stacks.ranks import NodeReport, ObservedRank
from safelaunch.stacks.scene import HangVerdict
from safelaunch.stacks.stacks import UNREADABLE, RankGroup, doing, fold_numbers, label, tell_groups
from safelaunch.stacks.stacktree import grow, render_tree

MOST_ROWS = 8
MOST_RAS = 12
Fold = Callable[[Iterable[str]], str]   # node names → "n[0-3]"


def headline(groups: Sequence[RankGroup]) -> str:
    """All ranks in a line: "380 ranks: broadcast ← … · 1 unreadable: D state in write() on /gpfs"."""
    shown = tell_groups(groups[:MOST_ROWS])
    rest = sum(group.size for group in groups[MOST_ROWS:])
    return " · ".join([*shown, *([f"{rest} more in {len(groups) - MOST_ROWS} groups"] if rest else [])]) or "no ranks"


def tell(groups: Sequence[RankGroup], verdict: HangVerdict, reports: Sequence[NodeReport], silent: Sequence[Silent],
         fold: Fold) -> list[str]:
    """Lines for people: the verdict, the groups, the tree."""
    lines = [headline(groups), "", *_verdict_lines(verdict, fold)]
    lines += [_row("no answer", f"{fold(nodes)}: {why}") for why, nodes in _by_reason(silent)]
    lines += [_row("hint", hint) for hint in _hints(rank for group in groups for rank in group.ranks if rank.hint)]
    lines += [_row("note", f"{report.node}: {note}") for report in reports for note in report.notes][:MOST_ROWS]
    lines += [_row("left over", tell_left(report.node, row)) for report in reports for row in report.left][:MOST_ROWS]
    lines += [_row("NCCL RAS", line) for line in ras_lines(next((one.ras for one in reports if one.ras), ""))]
    for group in groups:
        lines += ["", *_group_lines(group, fold)]
    tree = render_tree(grow(groups))
    return [*lines, "", "from the program's start:", *tree] if len(groups) > 1 and tree else lines


def _verdict_lines(verdict: HangVerdict, fold: Fold) -> list[str]:
    kind = verdict.kind.replace("_", " ")
    kind = "no hang" if kind == "moving" else kind
    first = verdict.summary if kind == "unknown" else f"{kind}: {verdict.summary}"
    lines = [_row("verdict", f"{first} ({verdict.confidence:.0%} sure)")]
    lines += [_row("odd", f"{odd.name}: {odd.why}") for odd in verdict.odd[:MOST_ROWS]]
    if len(verdict.odd) > MOST_ROWS:
        lines.append(_row("", f"… {len(verdict.odd) - MOST_ROWS} more"))
    if verdict.suspects:
        lines.append(_row("suspects", fold(verdict.suspects)))
    more = [line for line in verdict.evidence if not _is_group(line)]
    return lines + [_row("evidence", line) for line in more[:MOST_ROWS]]


def _is_group(line: str) -> bool:
    return line.partition(": ")[0].partition(" ")[2] in ("rank", "ranks", "unreadable")   # the headline says it


def _group_lines(group: RankGroup, fold: Fold) -> list[str]:
    first = group.ranks[0]
    cpus = [rank.cpu for rank in group.ranks if rank.cpu is not None]
    cpu = f" · {sum(cpus) / len(cpus):.0%} of a core" if cpus else ""
    utils = [rank.gpu_util for rank in group.ranks if rank.gpu_util is not None]
    gpu = f" · GPU {min(utils):.0f}–{max(utils):.0f} %" if utils else ""
    numbers = f"{'rank' if group.size == 1 else 'ranks'} {group.numbers} · " if group.numbers else ""
    where = f", {group.where}" if group.where else ""
    lines = [f"{group.size} {doing(group.kind)}{where} · {numbers}{fold(group.nodes)}{cpu}{gpu}"
             f" · here pid {first.pid} on {first.node}"]
    lines += [f"    {frame}" for frame in group.stack]
    if group.kind == UNREADABLE:
        lines += [f"    {count if count > 1 else ''}{' × ' if count > 1 else ''}{why}" for why, count in
                  Counter(rank.why for rank in group.ranks if rank.why).most_common(3)]
    if group.kind == UNREADABLE or group.where:
        lines += _kernel_lines(first)
    return lines


def _kernel_lines(rank: ObservedRank) -> list[str]:
    place = rank.stuck_in or rank.main
    if place is None:
        return []
    words = [f"state {place.state}" if place.state else "", f"wchan {place.wchan}" if place.wchan else "",
             f"in {place.call}()" if place.call else "", place.path,
             f"mount {place.mount} ({place.fs})" if place.mount else ""]
    lines = [f"    kernel: {' · '.join(filter(None, words))}"]
    return [*lines, f"    kernel stack: {' ← '.join(rank.kernel[:6])}"] if rank.kernel else lines


def _by_reason(silent: Iterable[Silent]) -> list[tuple[str, list[str]]]:
    reasons: dict[str, list[str]] = {}
    for one in silent:
        reasons.setdefault(one.why, []).append(one.node)
    return list(reasons.items())


def tell_left(node: str, row: Mapping[str, Any]) -> str:
    """A process that should not be on a node, in a line: "n3: pid 4711 of bob (python train.py) holds 71000 MB of GPU
    2".
    """
    whose = "an earlier attempt of this run" if row["whose"] == "ours" else row["user"] or "nobody who is known"
    words = f"{node}: pid {row['pid']} of {whose}{f' ({said})' if (said := row['cmd'] or row['name']) else ''}"
    if row["gpus"]:
        words += f" holds {row['gpu_mb']:.0f} MB of GPU {','.join(map(str, row['gpus']))}"
    elif row["rss_mb"]:
        words += f" holds {row['rss_mb']} MB of memory"
    ended = {True: "it was ended", False: "it could not be ended"}.get(row["ended"], "")
    return "; ".join(filter(None, (words, ended, row["why"])))


def ras_lines(text: str) -> list[str]:
    """What NCCL's RAS complains of: the lines below its headings Errors and Warnings (NCCL user guide, RAS)."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not set(line.strip()) <= set("=-")]
    start = next((place for place, line in enumerate(lines) if line in ("Errors", "Warnings")), len(lines))
    return [line for line in lines[start:] if line not in ("Errors", "Warnings")][:MOST_RAS]


def _row(name: str, text: str) -> str:
    return f"{name:<{LABEL_WIDTH}}{text}"


def _hints(ranks: Iterable[ObservedRank]) -> list[str]:
    """What would help; once, where the hints of many ranks differ in a pid alone."""
    alike: dict[str, list[str]] = {}
    for rank in ranks:
        alike.setdefault(rank.hint.replace(str(rank.pid), "PID"), []).append(rank.hint)
    return [hints[0] + (f" ({len(hints)} ranks alike)" if len(set(hints)) > 1 else "") for hints in alike.values()]


def to_public(groups: Sequence[RankGroup], verdict: HangVerdict, reports: Sequence[NodeReport],
              silent: Sequence[Silent],
              took_s: float) -> dict[str, Any]:
    """The object of `stacks --json`, documented in docs/stacks.md."""
    return {
        "v": 1, "took_s": round(took_s, 3), "ranks": sum(group.size for group in groups), "headline": headline(groups),
        "verdict": verdict_to_public(verdict),
        "groups": [{"count": group.size, "kind": group.kind, "where": group.where, "label": label(group.stack),
                    "stack": list(group.stack), "ranks": group.numbers, "nodes": list(group.nodes),
                    "representative": _rank_to_public(group.ranks[0])} for group in groups],
        "nodes": [{"node": report.node, "ranks": fold_numbers(r.number for r in report.ranks if r.number is not None),
                   "processes": report.processes, "took_s": report.took_s, "gpus": report.gpus or None,
                   "mounts": dict(report.mounts), "left": [dict(row) for row in report.left],
                   "notes": list(report.notes)} for report in reports],
        "ras": next((report.ras for report in reports if report.ras), None),
        "silent": [{"node": one.node, "why": one.why} for one in silent]}


def verdict_to_public(verdict: HangVerdict) -> dict[str, Any]:
    """A verdict as JSON."""
    return {"category": verdict.category, "kind": verdict.kind, "confidence": round(verdict.confidence, 2),
            "summary": verdict.summary, "suspects": list(verdict.suspects), "evidence": list(verdict.evidence),
            "witnesses": list(verdict.witnesses),
            "odd": [{"rank": odd.number, "node": odd.node, "pid": odd.pid, "why": odd.why} for odd in verdict.odd]}


def _rank_to_public(rank: ObservedRank) -> dict[str, Any]:
    place = rank.stuck_in or rank.main
    kernel = dict(zip(("state", "wchan", "call", "path", "mount", "fs"), place[2:], strict=True)) if place else None
    return {"rank": rank.number, "node": rank.node, "pid": rank.pid, "states": rank.states, "cpu": rank.cpu,
            "gpu_util": rank.gpu_util, "why": rank.why, "kernel": kernel, "kernel_stack": list(rank.kernel)}


def render_rank(rank: ObservedRank) -> str:
    """One rank's dump for a file of its own."""
    lines = [f"{rank.name}, pid {rank.pid}, states {rank.states}", *_kernel_lines(rank)]
    lines += [f"    no stack: {rank.why}"] if rank.why else []
    for number, stack in enumerate(rank.samples, 1):
        lines += [f"look {number}:", *(f"    {frame}" for frame in stack)]
    for what, places in (("thread", rank.blocked), ("process", rank.below)):
        lines += [f"{what} {place.pid} {place.name}: state {place.state}"
                  f"{f' in {place.call}()' if place.call else ''}{f' on {place.mount}' if place.mount else ''}"
                  for place in places]
    return "\n".join(lines) + "\n"
