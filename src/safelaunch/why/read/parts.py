"""What one log file gave, or a piece of it, and the parts of a file as one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from safelaunch.why.findings import Finding, Progress

Speaker = tuple[str | None, int | None]       # host and rank, as far as they are known
Signs = tuple[Progress, Progress, Progress]   # first, last, highest

KEEP_ALL = 300             # findings of one rule; beyond, only the first of each rank or host, and the last
KEEP_MOST = 2000           # of one rule in any case
RECENT_SIGNS = 64          # the judge excuses an error by the steps after it: a few must be known, not one


@dataclass
class Part:
    """What one file, or a piece of it, gave."""

    findings: list[Finding] = field(default_factory=list)
    progress: dict[Speaker, Signs] = field(default_factory=dict)
    recent: list[Progress] = field(default_factory=list)   # the last signs of anybody: what steps came after an error
    counts: dict[str, int] = field(default_factory=dict)
    newlines: int = 0


def latest_signs(signs: list[Progress]) -> list[Progress]:
    """The last RECENT_SIGNS of them."""
    return sorted(signs, key=_offset)[-RECENT_SIGNS:]


def join_signs(known: Signs, more: Signs) -> Signs:
    """The first, the last and the highest of both; one whose step is not known is not the highest while others are."""
    return (min(known[0], more[0], key=_offset), max(known[1], more[1], key=_offset),
            max(known[2], more[2], key=lambda sign: (-1 if sign.step is None else sign.step, sign.offset)))


def merge_parts(parts: Iterable[Part]) -> Part:
    """The parts of one file, in the order of the file, as one."""
    whole = Part()
    kept: dict[str, set[Speaker]] = {}
    last: dict[str, Finding] = {}
    totals: dict[str, int] = {}
    for part in parts:
        whole.newlines += part.newlines
        for rule, count in part.counts.items():
            whole.counts[rule] = whole.counts.get(rule, 0) + count
        whole.recent = latest_signs([*whole.recent, *part.recent])
        for speaker, signs in part.progress.items():
            known = whole.progress.get(speaker)
            whole.progress[speaker] = signs if known is None else join_signs(known, signs)
        for finding in sorted(part.findings, key=_offset):
            speakers = kept.setdefault(finding.rule, set())
            totals[finding.rule] = totals.get(finding.rule, 0) + 1
            is_new = (finding.host, finding.rank) not in speakers
            if totals[finding.rule] <= KEEP_ALL or (is_new and len(speakers) < KEEP_MOST):
                speakers.add((finding.host, finding.rank))
                whole.findings.append(finding)
            else:
                last[finding.rule] = finding
    whole.findings = sorted((*whole.findings, *last.values()), key=_offset)
    return whole


def _offset(found: Finding | Progress) -> int:
    return found.offset
