"""Whether hang checks of a silent training prove a hang, or show something slow.

Stacks alone prove nothing: an unannounced evaluation is at `loss.item()` in nine of ten samples, and during one rank's
checkpoint all others wait in a barrier. Signs of life are: a stack that moves, bytes read or written, new memory
touched, a compiler or data loaders that compute. Without a sign of life, only what cannot pass is proof at once. That
is a process that has ended or is stopped, a node that does not answer, or ranks in different collectives. A rank that
waits for a file, its data or the network looks the same a second before it goes on. So that must last (hang.hold_s),
over all checks and a third, longer one. How long is told by what the ranks are at (hangs.named), not by the clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from safelaunch.hangs import hang
from safelaunch.hangs.hang import Rhythm
from safelaunch.hangs.named import fetches_or_builds, is_named_for_sure
from safelaunch.stacks import activity
from safelaunch.stacks.loading import waits_for_file
from safelaunch.stacks.ranks import Life, NodeReport, ObservedRank, Stack
from safelaunch.stacks.scene import HangVerdict, computes, names_of
from safelaunch.stacks.sleepers import Asleep, find_asleep, slept_on, verdict_on_sleepers
from safelaunch.stacks.stacks import MOVING, STUCK, RankGroup, normalise, split_frame
from safelaunch.trainlog import lines


class Least(NamedTuple):
    """What counts as a sign of life: so much between two checks, and so much a second where these are far apart."""

    amount: float
    a_second: float


BYTES = Least(1 << 20, 50_000)   # a rank's heartbeats are less, a checkpoint's piece is more
FAULTS = Least(1000, 20)         # pages: 4 MB of memory touched anew
BELOW_S = Least(0.5, 0.05)       # of CPU: a compiler, a tokeniser; idle data loaders take a hundredth of it
BETWEEN_LOOKS_S = 10.0   # two looks that must agree before anything is ended are so far apart
LAST_LOOK_S = 40.0       # a loop stands at one line nine times of ten: the third look takes 40 samples, a second apart
NAMED_LOOK_S = 20.0      # ... and 20 of ranks of which none runs but to ask for the one that is named
OFTEN_S = hang.HOLD_S / 3   # after somebody was seen to work: three looks that see nobody, before that counts
ALL_LOOKS_S = 65.0       # all three, with what the helper steps take to start
_NOT_A_HANG = "no hang so far"
# Functions on the way to what takes longer than a step; by name, as the program's own files are anybody's.
_PHASES = (
    (lines.CHECKPOINT, re.compile(r"(?:^|[._])save(?:_|$)|save_(?:checkpoint|model|pretrained|state)|save_to_disk")),
    (lines.EVALUATION, re.compile(r"(?:^|[._])(?:evaluate|evaluation|validate|validation|eval|estimate_loss)"
                                     r"(?:_(?:step|batch|loop|epoch|model|loss|all|and_\w+))?$|^(?:run|do)_(?:eval|valid)")),
)
_SURE = {"silent_nodes", "missing_ranks"}
_BY_KIND = {activity.COMPILE: lines.COMPILE, activity.DATA: lines.DATA}


class Weighed(NamedTuple):
    """The result of the checks so far. `phase`: the phase that the stacks show, if it takes longer than a step.
    `is_sure` False = it may pass, and is proof only when it has lasted (for `least_s` at least). `is_alive`: a rank
    works.
    """

    is_proof: bool
    why: str
    phase: str = ""
    is_sure: bool = True
    is_alive: bool = False
    least_s: float = hang.HOLD_S


class EndedRanks(Enum):
    """Whether ranks of the same step have ended while others live, as their guards say."""

    NONE = "none"
    WELL = "well"       # all of them with exit code 0: another may still merge, export or evaluate
    BADLY = "badly"     # one of them not: the others wait for it, or do not need it


class Examination(NamedTuple):
    """One check of all nodes, and its verdict."""

    reports: Sequence[NodeReport]
    groups: Sequence[RankGroup]
    found: HangVerdict
    ended: EndedRanks = EndedRanks.NONE


def weigh(looks: Sequence[Examination]) -> Weighed:
    """The result of the checks of one silence, the newest last: a rank that was elsewhere in the first one goes on.

    Beside ranks that have ended, only those in a collective wait for them: another works alone, an upload for instance.
    """
    weighed, ended, kind = _weigh(looks), looks[-1].ended, looks[-1].found.kind
    if not weighed.is_proof or ended is EndedRanks.NONE or kind in ("process", "gpu"):
        return weighed
    if kind in ("deadlock", "network"):
        return weighed._replace(is_sure=weighed.is_sure or ended is EndedRanks.BADLY,
                                least_s=max(hang.HOLD_S, weighed.least_s))
    return weighed._replace(is_sure=False, least_s=hang.HOLD_MOST_S)


def _weigh(looks: Sequence[Examination]) -> Weighed:
    found = looks[-1].found
    phase = stacks_phase(looks[-1].groups)
    if anew := _started_anew(looks):
        verb = "was" if len(anew) == 1 else "were"
        return Weighed(False, f"{_NOT_A_HANG}: {names_of(anew)} {verb} started anew since the last look", phase,
                       is_alive=True)
    asleep = _sleeps_among_moving(looks)
    if asleep is not None and not signs_of_life(looks, but_cpu=True):
        told = verdict_on_sleepers(asleep)
        return Weighed(True, told.summary, phase, is_sure=False,
                       least_s=hang.HOLD_MOST_S if asleep.is_busy else _least_s(looks, told, phase))
    if not found.witnesses or found.kind == "moving":
        is_alive = found.kind == "moving" and _asleep(looks) is None   # else the next check tells
        return Weighed(False, f"{_NOT_A_HANG}: {found.summary}", phase, is_alive=is_alive)
    if found.kind in ("process", "gpu"):
        return Weighed(True, found.summary)   # whatever the others do, they will not go on
    alive = signs_of_life(looks)
    if alive:
        return Weighed(False, f"{_NOT_A_HANG}: {alive}", phase, is_alive=True)
    cannot_pass = bool(found.odd) and found.kind == "deadlock" and _is_split(looks[-1].groups)
    if phase == lines.DATA and _waits_alone_for_data(looks[-1]):
        phase = ""   # slow data keeps all waiting; this one must last no longer than other waits
    return Weighed(True, found.summary, phase, cannot_pass or not _SURE.isdisjoint(found.witnesses),
                   least_s=_least_s(looks, found, phase))


def _least_s(looks: Sequence[Examination], verdict: HangVerdict, phase: str) -> float:
    """How long a silence must last for this verdict: by what the ranks are at."""
    named = {(one.node, one.pid) for one in verdict.odd}
    odd = [rank for rank in _ranks_of(looks[-1]) if (rank.node, rank.pid) in named]
    if verdict.kind == "storage" or (verdict.kind == "data_loading" and any(map(waits_for_file, odd))):
        return hang.HOLD_FILES_S
    if verdict.kind != "data_loading" and any(fetches_or_builds(stack) for rank in odd for stack in rank.samples):
        return hang.HOLD_FILES_S
    is_named = verdict.kind == "deadlock" and not phase and is_named_for_sure(
        [_ranks_of(look) for look in looks], verdict.odd)
    return hang.NAMED_S if is_named else hang.HOLD_S


def _waits_alone_for_data(examination: Examination) -> bool:
    """Whether one rank, or few of many, wait for their data loader, and all others stand and wait for them."""
    ranks, few = _ranks_of(examination), examination.found.odd
    others = sum(group.size for group in examination.groups if group.kind == STUCK) - len(few)
    return examination.found.kind == "data_loading" and 0 < len(few) <= max(1, len(ranks) // 4) \
        and others == len(ranks) - len(few)


def conclude(rhythm: Rhythm, now_s: float, looks: Sequence[Examination], more_s: float = 0.0) -> tuple[Rhythm, str]:
    """(the rhythm from now on, why nothing is ended); "" = it is a hang by these checks.

    `more_s`: how long the remaining checks take; a silence that may pass may still lack so much of its time. With
    hang.no_progress set, two checks without a sign of life are enough.
    """
    weighed = weigh(looks)
    later = hang.postpone_check(rhythm, now_s, weighed.phase)
    is_asked = rhythm.no_progress_s is not None and weighed.least_s < hang.HOLD_MOST_S
    if not weighed.is_proof:
        if later.phase != rhythm.phase:
            return replace(later, alive_s=now_s if weighed.is_alive else rhythm.alive_s), weighed.why
        if weighed.is_alive:   # a rank may rest after the last check: check again soon
            later = hang.check_by(replace(later, alive_s=now_s), now_s + OFTEN_S)
        elif _asleep(looks) is not None and hang.hold_s(rhythm, now_s, hang.NAMED_S) > 0:   # it may be named by more
            later = hang.check_by(later, now_s + BETWEEN_LOOKS_S)
        return _before_it_counts(later, now_s), weighed.why
    if weighed.phase and later.phase != rhythm.phase and not is_asked:
        return later, f"{weighed.why}; {weighed.phase} may take longer than a step"
    left_s = hang.hold_s(rhythm, now_s, weighed.least_s)
    if not weighed.is_sure and left_s > more_s and not is_asked:
        return _before_it_counts(later, now_s, weighed.least_s), f"{weighed.why}: this may pass"
    return rhythm, ""


def counts_at_s(rhythm: Rhythm, looks: Sequence[Examination]) -> float | None:
    """When a silence that may pass counts as a hang if nothing changes, by the rhythm after its checks, monotonic
    seconds; None = they show a rank at work, or nothing.
    """
    weighed = weigh(looks)
    if not weighed.is_proof:
        return None
    counts_s = hang.hold_s(rhythm, 0.0, weighed.least_s)
    return max(counts_s, hang.deadline_s(rhythm)) if weighed.phase and rhythm.is_guess else counts_s


def _before_it_counts(rhythm: Rhythm, now_s: float, least_s: float = hang.HOLD_S) -> Rhythm:
    """With the next check early enough that the last one is complete when the silence counts.

    Seen: 18 s were left, and the next check came 136 s later.
    """
    left_s = hang.hold_s(rhythm, now_s, least_s)
    if left_s <= 0:
        return rhythm
    return hang.check_by(rhythm, now_s + (left_s - ALL_LOOKS_S if left_s > ALL_LOOKS_S else left_s))


def pause_before_last_s(rhythm: Rhythm, now_s: float, looks: Sequence[Examination]) -> float:
    """Seconds until the last check of what may pass: it is not complete before the silence counts."""
    least_s, length_s = weigh(looks).least_s, last_look_s(looks)
    return max(BETWEEN_LOOKS_S if length_s == LAST_LOOK_S else 0.0, hang.hold_s(rhythm, now_s, least_s) - length_s)


def last_look_s(looks: Sequence[Examination]) -> float:
    """How long the last check is, with a sample a second."""
    return NAMED_LOOK_S if weigh(looks).least_s < hang.HOLD_S else LAST_LOOK_S


def verdict_of(looks: Sequence[Examination]) -> HangVerdict:
    """The verdict of the last check, or where that is unknown, the one on a rank that sleeps."""
    asleep = _sleeps_among_moving(looks)
    return looks[-1].found if asleep is None else verdict_on_sleepers(asleep)


def _sleeps_among_moving(looks: Sequence[Examination]) -> Asleep | None:
    """Ranks that sleep beside others that may be polling; None where the last check says more. A driver may sleep while
    its workers compute. So where others use a core, perhaps for work, it must have slept since the check before.
    """
    found = looks[-1].found
    asleep = _asleep(looks) if found.kind == "moving" or not found.witnesses else None
    if asleep is None or (asleep.is_busy and (len(looks) < 2 or not slept_on(asleep, _ranks_of(looks[0])))):
        return None
    return asleep


def _asleep(looks: Sequence[Examination]) -> Asleep | None:
    """Which ranks sleep, by the samples of all checks: three samples of a loop may all miss what it polls for."""
    samples: dict[tuple[str, int], tuple[Stack, ...]] = {}
    for look in looks:
        for rank in _ranks_of(look):
            samples[rank.node, rank.pid] = (*samples.get((rank.node, rank.pid), ()), *rank.samples)
    return find_asleep([rank._replace(samples=samples[rank.node, rank.pid]) for rank in _ranks_of(looks[-1])])


def _ranks_of(examination: Examination) -> list[ObservedRank]:
    return [rank for report in examination.reports for rank in report.ranks]


def is_certain(rhythm: Rhythm, looks: Sequence[Examination]) -> bool:
    """Whether two checks are enough: what may pass is checked a third time, for longer."""
    return rhythm.no_progress_s is not None or weigh(looks).is_sure


def stacks_phase(groups: Iterable[RankGroup]) -> str:
    """What takes longer than a step, of what any of the ranks is at; "" = none of it."""
    found = set()
    for group in groups:
        found.add(_BY_KIND.get(activity.classify(group.stack).kind, ""))
        names = [split_frame(frame)[0] for frame in group.stack]
        found |= {phase for phase, words in _PHASES if any(words.search(name) for name in names)}
    order = (lines.CHECKPOINT, lines.EVALUATION, lines.COMPILE, lines.DATA)
    return next((phase for phase in order if phase in found), "")


def _is_split(groups: Sequence[RankGroup]) -> bool:
    """Whether all are in collectives, but not in the same one."""
    at = [activity.classify(group.stack) for group in groups if group.stack]
    return len(set(at)) > 1 and all(one.kind == activity.COLLECTIVE for one in at)


def signs_of_life(looks: Sequence[Examination], *, but_cpu: bool = False) -> str:
    """For people: which ranks still do something, and what; "" = none. `but_cpu`: besides using a core."""
    poll = _who_poll(looks)
    moving = [rank for look in looks for group in look.groups if group.kind == MOVING
              for rank in group.ranks if computes(rank) and (rank.node, rank.pid) not in poll]
    if moving and not but_cpu:
        return f"{names_of(_unique_ranks(moving))} still {'moves' if len(_unique_ranks(moving)) == 1 else 'move'}"
    ranks = [{(rank.node, rank.pid): rank for report in look.reports for rank in report.ranks} for look in looks]
    for key, rank in ranks[-1].items():
        seen = [one[key] for one in ranks if key in one]
        stacks = {normalise(one.samples[-1]) for one in seen if one.samples}
        if len(stacks) > 1 and computes(rank) and key not in poll and not but_cpu:
            return f"{rank.name} was elsewhere at the last look"
        if not rank.samples and rank.cpu is not None and computes(rank):
            return f"{rank.name} computes, and nobody may see what"
        life = [point for one in seen for point in one.life]
        if len(life) > 1 and (what := _done(life[0], life[-1])):
            return f"{rank.name} {what}"
    return ""


def _who_poll(looks: Sequence[Examination]) -> set[tuple[str, int]]:
    """(node, pid) of ranks that use a core to wait in a loop for a rank that sleeps: that is no work."""
    asleep = _asleep(looks)
    return set() if asleep is None or asleep.is_busy else {(rank.node, rank.pid) for rank in asleep.rest}


def _started_anew(looks: Sequence[Examination]) -> list[ObservedRank]:
    """Ranks whose number belonged to another process in an earlier check: a launcher has restarted its workers."""
    earlier, last = ({(rank.node, rank.number): rank for report in look.reports for rank in report.ranks}
                     for look in (looks[0], looks[-1]))
    return [rank for (node, number), rank in last.items() if number is not None
            and earlier.get((node, number), rank).pid != rank.pid]


def _done(first: Life, last: Life) -> str:
    spent_s = max(1.0, last.t - first.t)

    def is_more(now: float, before: float, least: Least) -> bool:
        return now - before >= max(least.amount, least.a_second * spent_s)

    if is_more(last.moved, first.moved, BYTES):
        return f"has read or written {(last.moved - first.moved) / (1 << 20):.0f} MB"
    if is_more(last.below_s, first.below_s, BELOW_S):
        return f"waits for processes of its own, which have computed for {last.below_s - first.below_s:.1f} s"
    if last.rests > first.rests:
        return "goes through backward passes"
    if is_more(last.faults, first.faults, FAULTS):
        return f"has touched {(last.faults - first.faults) * 4 / 1024:.0f} MB of new memory"
    return ""


def _unique_ranks(ranks: Sequence[ObservedRank]) -> list[ObservedRank]:
    return list({(rank.node, rank.pid): rank for rank in ranks}.values())
