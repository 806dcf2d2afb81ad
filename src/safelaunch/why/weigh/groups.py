"""Findings folded into groups of one meaning, and how much each group weighs as the cause."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from safelaunch.why.categories import advice
from safelaunch.why.findings import Cited, Finding, Log, Role, Rule
from safelaunch.why.fingerprint import generalize
from safelaunch.why.order.episodes import Episode, Moment, is_excused, is_perhaps_late, order_of
from safelaunch.why.read.fields import ABORT, read_fields
from safelaunch.why.read.globalranks import OF_TASK
from safelaunch.why.read.tracebacks import find_user_frame, is_ignored, is_of_thread
from safelaunch.why.rules.generic import EXCEPTION, LINE
from safelaunch.why.weigh.exceptions import COMPARED, GUESS, Reading, read_exception
from safelaunch.why.weigh.holders import are_others
from safelaunch.why.weigh.words import guesses_of, sound_of

# Rules of what another process holds → what it is where that process is the training's own.
MEMORY_HELD, HELD_AT_START = "gpu.memory_held", "gpu.held_at_start"
SHARED = {MEMORY_HELD: "gpu.out_of_memory", HELD_AT_START: "config.vllm", "gpu.busy": "gpu.shared_exclusively",
          "gpu.in_use": "gpu.shared_exclusively"}
SYMPTOM_SHARE = 0.85        # what a symptom is worth as a cause when nothing deeper is there
THREAD_COST = 0.15
WHAT = "native.what"
ABORTED = 0.45              # a report of SIGABRT, by whomever
UNSURE = 0.6                # rules up to here have a category by default only, where the line goes on to say why
SOURCE_COST = 0.2           # a line of a program's text, shown by a traceback: its message stands below
NEAR_END_LINES = 25         # an error so near the last line may well be what ended the log


@dataclass(frozen=True)
class FindingGroup:
    """Findings of one meaning. `first` states it; `weight` is what it is worth as the cause."""

    rule: Rule
    category: str
    role: Role
    weight: float
    action: str
    first: Finding
    last: Finding
    count: int
    hosts: tuple[str, ...]
    ranks: tuple[int, ...]
    is_fatal: bool = False
    is_excused: bool = False
    is_doubtful: bool = False   # steps behind it would excuse it, had they not perhaps come late

    @property
    def summary(self) -> str:
        """The rule's summary with what the line says filled in."""
        return fill(self.rule, self.first)


_SAYS_NOTHING = re.compile(r"(?i): unspecified error\W*$")
_SOURCE = re.compile(r"\s{2,}(?:raise|return|assert|await|yield|from|import|with|if|for) ")


def fill(rule: Rule, found: Finding) -> str:
    """The rule's summary; a group that took no part in the match is left out."""
    words = dict.fromkeys(_names(rule.summary), "") | dict(found.groups) | {
        "line": found.text, "speaker": found.host or "a node"}
    text = rule.summary.format_map(words)
    return " ".join(text.split()).strip(" :") if text.strip() else found.text.strip()


def _names(template: str) -> list[str]:
    return [part.split("}")[0] for part in template.split("{")[1:]]


def gather(episode: Episode, log: Log) -> tuple[FindingGroup, ...]:
    """The groups of an episode, in the order of their first lines."""
    ends = _last_lines(log)
    folded: dict[tuple[str, str], list[Finding]] = {}
    ignored: set[tuple[str, str]] = set()
    for found in _unchained(episode):
        rule = episode.rules[found.rule]
        if rule.role in ("progress", "launch", "done", "noise"):
            continue
        key = (rule.id, generalize(found.text) if rule.role == "cause" else "")
        if is_ignored(found.block):
            ignored.add(key)
        else:
            folded.setdefault(key, []).append(found)
    for key in ignored & folded.keys():
        # Ignored tracebacks of several processes mixed under one prefix: a line torn from its own is ignored, too.
        folded[key] = [found for found in folded[key] if found.block]
    groups = [_weigh(episode.rules[key[0]], items, episode, log, ends) for key, items in folded.items() if items]
    return tuple(sorted(groups, key=lambda group: order_of(group.first, episode.is_timed)))


def _weigh(rule: Rule, items: Sequence[Finding], episode: Episode, log: Log, ends: dict[int, int]) -> FindingGroup:
    first = items[0]
    hosts = tuple(dict.fromkeys(host for found in items if (host := culprit_host(rule, found)) is not None))
    if rule.id in SHARED and not _is_anothers(rule, items, episode, log, hosts):
        rule = episode.rules[SHARED[rule.id]]
    category, weight, action = rule.category, rule.weight, rule.action
    if rule.id in (EXCEPTION, LINE):
        said = f"{first.groups.get('message', '')} {first.groups.get('more', '')}".strip()
        reading = read_exception(first.groups.get("type", ""), said, first.block)
        category, weight, action = reading.category, min(reading.weight, 1.0), reading.action
        if rule.id == LINE:
            weight = min(weight, rule.weight)
    if any(is_of_thread(found.block) for found in items):
        weight -= THREAD_COST
    if not first.block and _SOURCE.match(first.text):
        weight -= SOURCE_COST
    role = rule.role
    if rule.id == WHAT:
        reading = _read_what(first, episode)
        category, weight, action = reading.category, reading.weight, reading.action
    elif role == "cause" and (read_fields(first.text).signal == ABORT or _SAYS_NOTHING.search(first.text)):
        role, weight = "symptom", min(weight, ABORTED)   # it follows a statement, which stands above
    elif role == "cause" and rule.id != EXCEPTION and (listed := guesses_of(first.text))[1] and (
            rule.id == LINE or not re.search(rule.pattern, listed[0].encode())):
        role, (category, weight, action) = "symptom", GUESS   # only guessed at
    elif "why" in first.groups and rule.summary.endswith("{why}") and weight <= UNSURE:
        category = sound_of(first.groups["why"], is_failure=True)[0] or category
        action = action if category == rule.category else ""
    ranks = tuple(dict.fromkeys(rank for found in items if (rank := culprit_rank(rule, found)) is not None))
    group = FindingGroup(rule, category, role, weight, action or advice(category), first, items[-1],
                         max(len(items), log.counts.get(rule.id, 0) if rule.role != "cause" else 0), hosts, ranks)
    excused = is_excused(items[-1], episode, same_run=category == "numerical")
    late = excused and is_perhaps_late(items[-1], episode)
    is_near_end = items[-1].offset >= ends.get(items[-1].file, 0)
    return replace(group, is_excused=excused and not late, is_doubtful=late, is_fatal=not excused and is_near_end)


def _read_what(found: Finding, episode: Episode) -> Reading:
    """What an uncaught C++ exception means, by its type, which the line above it names, and its words."""
    kinds = [one.groups.get("type") or "" for one in episode.findings
             if one.rule == "native.terminate" and one.file == found.file and one.offset < found.offset]
    kind = kinds[-1].replace("::", " ") if kinds and not kinds[-1].startswith("std::") else ""
    said = f"{kind} {found.groups.get('message', '')}"
    reading = read_exception("std.exception", said, ())
    is_told = reading.category != "user_code" or COMPARED.search(said) or sound_of(said)[0] == "user_code"
    return reading if is_told else Reading("native_crash", 0.5)


def _is_anothers(rule: Rule, items: Sequence[Finding], episode: Episode, log: Log, hosts: tuple[str, ...]) -> bool:
    """Whether somebody else's process holds what was asked for; the same on two nodes is the program's."""
    if rule.id not in (MEMORY_HELD, HELD_AT_START):
        return len(hosts) < 2
    offsets = {(found.file, found.offset) for found in items}
    other = [found.text for found in episode.findings if found.rule != rule.id]
    last = [line.text for line in log.last if (line.file, line.offset) not in offsets and " has " not in line.text]
    return are_others((found.text for found in items), (*other, *last), hosts)


def _unchained(episode: Episode) -> list[Finding]:
    """The findings with each chain of exceptions reduced to the one that says most, the first raised among equals."""
    kept: list[Finding] = []
    heads: dict[tuple[int, str | None, int | None], int] = {}
    for found in episode.findings:
        key = (found.file, found.host, found.rank)
        if not found.block:
            kept.append(found)
        elif found.chain == 0 or key not in heads:
            heads[key] = len(kept)
            kept.append(found)
        elif _worth(found, episode) > _worth(kept[heads[key]], episode) + 0.05:
            kept[heads[key]] = found
    return kept


def _worth(found: Finding, episode: Episode) -> float:
    rule = episode.rules[found.rule]
    if rule.id == EXCEPTION:
        return read_exception(found.groups.get("type", ""), found.groups.get("message", ""), found.block).weight
    return rule.weight if rule.role == "cause" else rule.weight * 0.4


def culprit_host(rule: Rule, found: Finding) -> str | None:
    """The host that a line blames: the one it names, else the one that printed it."""
    named = (found.groups.get(rule.host_group) if rule.host_group else None) or found.host
    if named is None:
        named = read_fields(found.text).host or read_fields(found.groups.get("more", "")).host
    return named


def culprit_rank(rule: Rule, found: Finding) -> int | None:
    """The rank that a line blames."""
    if OF_TASK in found.groups:
        return None
    named = found.groups.get(rule.rank_group or "local")   # of torchrun's own lines: the local rank
    if named and named.isdigit():
        return int(named)
    return read_fields(found.text).rank if found.rank is None else found.rank


def _last_lines(log: Log) -> dict[int, int]:
    """file → offset from which on a line is near the end."""
    ends: dict[int, int] = {}
    for index in range(len(log.files)):
        offsets = [line.offset for line in log.last if line.file == index]
        if offsets:
            ends[index] = offsets[max(0, len(offsets) - NEAR_END_LINES)]
    return ends


def cite(group: FindingGroup, log: Log, role: Role | None = None) -> Cited:
    """The group as a line that the verdict shows."""
    found = group.first
    return Cited(
        group.rule.id, role or group.role, log.files[found.file], found.line_number, found.text, found.host, found.rank,
        found.t, found.offset, group.count, group.hosts, group.ranks, found.block, group.category)


def moment(group: FindingGroup, episode: Episode) -> Moment:
    """When the group's first line was printed."""
    return order_of(group.first, episode.is_timed)


def place_of(group: FindingGroup) -> str:
    """The user's frame behind the group's exception, as "file.py:12 in function"; empty when there is none."""
    frame = find_user_frame(group.first.block)
    return f"{frame.path}:{frame.line} in {frame.function}" if frame else ""
