"""Why a job hangs, from its ranks' stacks: the kind, the ranks that are not where the others are, the suspects. The
first row of an ordered table that fits is the verdict. What a process cannot do to itself (D state, a stopped rank, a
GPU that does not answer) comes before what programs do to each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from safelaunch.base.model import Silent
from safelaunch.stacks.activity import BACKWARD, COLLECTIVE, DATA, GPU, LOCK, RENDEZVOUS, STORAGE
from safelaunch.stacks.loading import ranks_at_data
from safelaunch.stacks.parallel import Sizes, sizes_of_command
from safelaunch.stacks.placetext import all_of, file_of, standing, tell_doing, tell_place
from safelaunch.stacks.ranks import KernelPlace, NodeReport, ObservedRank
from safelaunch.stacks.scene import (
    HangVerdict,
    Odd,
    Scene,
    activity_of,
    behind_in_flight,
    by_number,
    computes,
    is_asleep,
    is_device,
    main_wait,
    missing_ranks,
    names_of,
    odd_groups,
    odd_names,
    odd_one,
)
from safelaunch.stacks.sleepers import find_asleep, tell_busy, verdict_on_naps, verdict_on_sleepers
from safelaunch.stacks.stacks import (
    MOVING,
    STUCK,
    UNREADABLE,
    RankGroup,
    describe_place,
    describe_where,
    fold,
    fold_numbers,
    is_importing,
    label,
    labels,
    tell_groups,
)

MOST_ODD = 16        # more of them are no exception


def judge_hang(reports: Sequence[NodeReport], silent: Sequence[Silent] = (), *, sizes: Sizes | None = None,
               groups: tuple[RankGroup, ...] | None = None, has_ended: bool = False) -> HangVerdict:
    """The verdict on one check of all nodes. `sizes` of the parallel groups: None = those of the ranks' command line.
    `has_ended`: ranks have ended, as guards say, and none is missing."""
    ranks = [rank for report in reports for rank in report.ranks]
    told = next((rank.parallel for rank in ranks if rank.parallel), "") if sizes is None else ""
    sizes = sizes or sizes_of_command(told)
    found = fold(ranks) if groups is None else groups
    scene = Scene(found, tuple(reports), tuple(silent), sizes,
                  {number: activity_of(group.stack, group.ranks) for number, group in enumerate(found)},
                  () if has_ended else missing_ranks(ranks))
    draft = next(draft for row in _ROWS for draft in [row(scene)] if draft is not None)
    return HangVerdict(draft.kind, draft.summary, draft.confidence, draft.odd[:MOST_ODD], draft.suspects,
                       (*draft.evidence, *_common_evidence(scene), *(
                           [f"parallel groups as the ranks' command line says: {told}"] if told and sizes else [])),
                       _witnesses(scene), folders=draft.folders[:MOST_ODD])


# --- the rows, in order ---------------------------------------------------------------------------------------------


def _storage(scene: Scene) -> HangVerdict | None:
    """An incident: rank 0 asleep for ever in a log write, "the filesystem froze and became unresponsive"."""
    late = [one for one in _late_mounts(scene) if one in _mounts_in_use(scene)]
    asleep = [rank for rank in scene.ranks for place in [rank.stuck_in] if place is not None and not is_device(rank)
              and (place.mount or place.call in ("read", "write", "fsync"))]
    asleep += [rank for rank in scene.ranks if rank.stuck_in is None and _place_on(rank, late) is not None]
    if not asleep and not late:
        return None
    slept_on = [place.mount for rank in asleep for place in [rank.stuck_in or rank.main] if place is not None]
    mounts = list(dict.fromkeys([*slept_on, *(mount for _, mount in late)]))
    nodes = tuple(dict.fromkeys([*(rank.node for rank in asleep), *(node for node, _ in late)]))
    # A filesystem that all nodes wait for is the site's; one that others use meanwhile is this node's.
    suspects = nodes if len(nodes) * 4 <= len(scene.reports) else ()
    who = names_of(asleep) if asleep else f"looks at {', '.join(sorted({mount for _, mount in late}))}"
    where = f" on {', '.join(filter(None, mounts))}" if any(mounts) else ""
    what = _what_of(asleep[0], late) if asleep else f"do not come back{where}"
    return HangVerdict("storage", f"{who}: {what}", 0.9 if asleep else 0.8,
                       tuple(odd_one(rank, _what_of(rank, late) + file_of(rank)) for rank in asleep), suspects,
                       tuple(f"{mount} does not answer on {node}" for node, mount in late[:4]),
                       folders=tuple(dict.fromkeys([*_folders(asleep), *(mount for _, mount in late)])))


def _late_mounts(scene: Scene) -> list[tuple[str, str]]:
    """(node, mount) of those that do not answer."""
    return [(report.node, mount) for report in scene.reports for mount, answer in report.mounts if answer == "late"]


def _mounts_in_use(scene: Scene) -> set[tuple[str, str]]:
    """(node, mount) on which a rank, or a process below it, has files open or is in a call.

    A dead mount that the training does not use is no reason to wait (seen: a hang beside another test's frozen folder
    was taken for storage).
    """
    return {(rank.node, mount) for rank in scene.ranks for mount in (
        *rank.mounts, *(place.mount for place in (rank.main, *rank.blocked, *rank.below) if place is not None))}


def _folders(asleep: Sequence[ObservedRank]) -> list[str]:
    """Where the files lie that these ranks wait for."""
    places = [rank.stuck_in or rank.main for rank in asleep]
    return [place.path.removesuffix(" (deleted)").rpartition("/")[0] or place.mount for place in places
            if place is not None and (place.path.startswith("/") or place.mount)]


def _place_on(rank: ObservedRank, late: Sequence[tuple[str, str]]) -> KernelPlace | None:
    """Where a rank waits for a mount that does not answer: over FUSE and NFS not in D state."""
    place = rank.main
    return place if place is not None and place.mount and (rank.node, place.mount) in late else None


def _what_of(rank: ObservedRank, late: Sequence[tuple[str, str]]) -> str:
    place = _place_on(rank, late)
    return describe_place(place, "waits") + ", which does not answer" if place is not None and rank.stuck_in is None \
        else describe_where(rank)


def _gpu(scene: Scene) -> HangVerdict | None:
    asleep = [rank for rank in scene.ranks if rank.stuck_in is not None and is_device(rank)]
    sick = [report for report in scene.reports if report.gpus not in ("", "ok", "absent")]
    if not asleep and not sick:
        return None
    nodes = tuple(dict.fromkeys([*(rank.node for rank in asleep), *(report.node for report in sick)]))
    said = tuple(f"nvidia-smi on {report.node}: {report.gpus if report.gpus != 'late' else 'does not come back'}"
                 for report in sick[:4])
    who = f"{names_of(asleep)}: asleep in the GPU's driver" if asleep else said[0]
    return HangVerdict("gpu", who, 0.85, tuple(odd_one(rank, describe_where(rank)) for rank in asleep), nodes, said)


def _process(scene: Scene) -> HangVerdict | None:
    """Ranks that cannot go on: ended, stopped, or missing."""
    odd = [odd_one(rank, "has ended, and its launcher has not noticed") for rank in scene.ranks
           if rank.is_gone and not rank.has_just_ended]
    odd += [odd_one(rank, "is stopped (by SIGSTOP or a debugger)") for rank in scene.ranks if rank.is_stopped]
    answered = tuple(report.node for report in scene.reports)
    if scene.missing and not scene.silent:
        odd += [Odd(number, "", 0, "is absent: no node has its process") for number in scene.missing]
    if not odd:
        return None
    first = odd[0]
    suspects = tuple(dict.fromkeys(one.node for one in odd if one.node and "stopped" not in one.why))
    return HangVerdict("process", f"{odd_names(odd)} {first.why}", 0.85, tuple(odd),
                       suspects if len(suspects) < max(2, len(answered)) else ())


def _silent(scene: Scene) -> HangVerdict | None:
    if not scene.mute or not scene.reports or odd_groups(scene):
        return None   # nobody has answered, or the others have a reason of their own
    waiting = sum(group.size for group in scene.of(COLLECTIVE, RENDEZVOUS, GPU) if group.kind == STUCK)
    wait = f", and {waiting} ranks of the others wait for somebody" if waiting else ""
    asked = len(scene.silent) + len(scene.reports)
    return HangVerdict("network", f"{len(scene.mute)} of {asked} nodes do not answer{wait}",
                       0.7 if waiting else 0.4, (), scene.mute if len(scene.mute) <= len(scene.reports) else ())


def _lock(scene: Scene) -> HangVerdict | None:
    """Ranks that wait for a lock file. While one of them builds the others wait for minutes, which is no hang."""
    waiting = [group for group in scene.of(LOCK) if group.kind == STUCK]
    ranks = [rank for group in waiting for rank in group.ranks]
    if not ranks or main_wait(scene) is not None:
        return None   # who keeps others waiting in a collective is told by that
    who, where = f"{names_of(ranks)} {'waits' if len(ranks) == 1 else 'wait'}", label(waiting[0].stack)
    pids = {(rank.node, rank.pid) for rank in ranks}
    others = [rank for rank in scene.ranks if (rank.node, rank.pid) not in pids]
    if others:
        return HangVerdict("unknown", f"{who} for a lock file ({where}), which {names_of(others)} may hold: "
                           "a build of extensions takes minutes", 0.4)
    return HangVerdict("deadlock", f"{who} for a lock file ({where}), and none of them holds it: a process that was "
                       f"killed has left it behind. {_LOCK_ADVICE}", 0.7)


_LOCK_ADVICE = ("Find it (PyTorch's: find ${TORCH_EXTENSIONS_DIR:-~/.cache/torch_extensions} -name lock), and remove "
                "it where no other job is building")


def _asleep(scene: Scene) -> HangVerdict | None:
    """A few ranks that sleep in the program's own code, beside ranks that poll for them."""
    found, most = find_asleep(scene.ranks), main_wait(scene)
    if found is None or found.is_busy or (most is not None and most.size > len(found.odd)):
        return None   # in a known collective those who are not in it are told from the others by that
    return verdict_on_sleepers(found)


def _moving(scene: Scene) -> HangVerdict | None:
    ended = [rank for rank in scene.ranks if rank.has_just_ended]
    if ended:
        return HangVerdict("moving", f"{names_of(ended)} ended during this look: this is no hang, or not yet", 0.7)
    moving = sum(computes(rank) for group in scene.groups if group.kind == MOVING for rank in group.ranks)
    readable = sum(group.size for group in scene.groups if group.kind in (MOVING, STUCK))
    if not moving or moving * 2 < readable:
        return None
    return HangVerdict("moving", f"{moving} of {readable} ranks move: this is no hang, or not yet", 0.7)


def _deadlock(scene: Scene) -> HangVerdict | None:
    """One part of the ranks waits in a collective that another part is not in. Seen: broadcast at evaluation."""
    groups, most = odd_groups(scene), main_wait(scene)
    if not groups or most is None:
        return None
    most, groups = by_number(most, groups)
    if scene.what(most).what == BACKWARD and (apart := verdict_on_naps(scene.ranks)) is not None:
        return apart   # it names the sleeping rank's line
    odd = [odd_one(rank, _why_odd(scene, group)) for group in groups for rank in group.ranks]
    odd = _odd_of_groups(scene, odd)
    pids = {(one.node, one.pid) for one in odd}
    groups = [group for group in groups if any((rank.node, rank.pid) in pids for rank in group.ranks)]
    share = len(odd) / max(1, len(scene.ranks))
    late = all(group.kind == MOVING for group in groups)
    does = tell_doing(scene.what(groups[0]), groups[0], len(odd))
    rest = f"{names_of(most.ranks)} {'wait' if most.size > 1 else 'waits'} in {tell_place(most.stack)}"
    return HangVerdict("deadlock", f"{odd_names(odd)} {does}{', and moving' if late else ''}, while {rest}",
                       (0.85 if share <= 0.25 else 0.6) - 0.2 * late, tuple(odd))


def _network(scene: Scene) -> HangVerdict | None:
    most = main_wait(scene)
    if most is None:
        return None
    what = scene.what(most)
    if what.kind == RENDEZVOUS:
        return HangVerdict("network", f"{most.size} ranks wait at the rendezvous: one has not come, or cannot connect",
                           0.6)
    idle = [(report.node, index) for report in scene.reports for index in report.idle_gpus]
    suspects = tuple(dict.fromkeys(node for node, _ in idle)) if 0 < len(idle) <= 2 else ()
    low = behind_in_flight(scene.ranks)
    return HangVerdict("network", f"all {most.size} ranks that can be read wait in the same collective, "
                       f"{label(most.stack)}: the network, or a GPU, holds it", 0.65 if idle or low else 0.5,
                       tuple(odd_one(rank, "its newest collective is older than others'") for rank in low), suspects,
                       tuple(f"GPU {index} of {node} is at 0 %, others at 90 % and more" for node, index in idle[:4]))


def _unknown(scene: Scene) -> HangVerdict:
    unreadable = sum(group.size for group in scene.groups if group.kind == UNREADABLE)
    if not scene.ranks:
        if not scene.reports:
            return HangVerdict("unknown", "no node has answered", 0.0)
        return HangVerdict("process", "no rank of the job is alive on the nodes that answered", 0.6)
    stuck = [group for group in scene.groups if group.kind == STUCK]
    if not stuck:
        return _unreadable(scene, unreadable)
    if scene.what(stuck[0]).kind == STORAGE:
        return HangVerdict("storage", f"{standing(stuck[0].ranks)} at a file ({label(stuck[0].stack)})", 0.5)
    if apart := verdict_on_naps(scene.ranks) or _apart(stuck):
        return apart
    if len(scene.groups) == 1 and all(rank.ran for rank in scene.ranks) and tell_busy(scene.ranks).endswith("busy"):
        return HangVerdict("unknown", f"looks healthy: {all_of(scene.ranks)} ran between the samples, at "
                           f"{tell_place(stuck[0].stack)}", 0.3)
    return HangVerdict("unknown", f"{standing(stuck[0].ranks)} at {label(stuck[0].stack)}, in no collective that is "
                       f"known here{tell_busy(stuck[0].ranks)}", 0.3)


def _apart(stuck: Sequence[RankGroup]) -> HangVerdict | None:
    """A few ranks that are elsewhere than nearly all others, which wait for them, in any library.

    Ranks whose innermost frames are the same stand in one place. A rank that serves the others, as rank 0 often does,
    comes there by another way than they do.
    """
    places: dict[str, list[RankGroup]] = {}
    for group in stuck:
        places.setdefault(label(group.stack, has_line=True), []).append(group)
    by_size = sorted(places.values(), key=lambda groups: -sum(group.size for group in groups))
    most, *others = ([rank for group in groups for rank in group.ranks] for groups in by_size)
    few = [rank for ranks in others for rank in ranks]
    if not few or len(few) * 3 > len(most):
        return None
    at_most, *at = labels([groups[0] for groups in by_size])
    verb = "is" if len(few) == 1 else "are"
    return HangVerdict(
        "deadlock", f"{names_of(few)} {verb} in {at[0]}, while {standing(most)} at {at_most}, in no collective "
        "that is known here", 0.4, tuple(odd_one(rank, f"stands elsewhere than most: {where}")
                                         for where, ranks in zip(at, others, strict=True) for rank in ranks))


def _unreadable(scene: Scene, count: int) -> HangVerdict:
    """No stack is readable: what the kernel says of the main threads, which needs no ptrace."""
    if not count:
        starting = [rank for rank in scene.ranks if is_importing(rank)]
        what = f"{names_of(starting)} still {'imports' if len(starting) == 1 else 'import'} modules: the program starts"
        return HangVerdict("unknown", what if starting else "no rank stands still, and none computes much", 0.1)
    slept, ran = ([rank for rank in scene.ranks if rank.ran is is_so] for is_so in (False, True))
    if not slept or not is_asleep(scene.ranks):
        return HangVerdict("unknown", f"{count} of {len(scene.ranks)} ranks cannot be read", 0.1)
    where = ", ".join(f"{number} in {call}" for call, number in Counter(map(_call_of, slept)).most_common(3))
    other = f", while {names_of(ran)} {'runs' if len(ran) == 1 else 'run'}" if ran else ""
    said = f"no stack can be read; {names_of(slept)} sleep without a pause ({where}){other}"
    return HangVerdict("unknown", said, 0.3, tuple(odd_one(rank, "runs, while the others sleep") for rank in ran))


def _call_of(rank: ObservedRank) -> str:
    place = rank.main
    return (place.call or place.wchan if place is not None else "") or "an unknown call"


_ROWS: tuple[Callable[[Scene], HangVerdict | None], ...] = (
    _storage, _gpu, _process, _lock, _asleep, _moving, ranks_at_data, _silent, _deadlock, _network, _unknown)


# --- what the rows share --------------------------------------------------------------------------------------------


def _why_odd(scene: Scene, group: RankGroup) -> str:
    at = scene.what(group)
    if group.kind == MOVING:
        return f"still works, in {tell_place(group.stack)}"
    if at.kind == COLLECTIVE:
        return f"is in another collective: {tell_place(group.stack)}"
    if at.kind == DATA:
        return "waits for its data loader"
    return f"is outside of the collective, in {tell_place(group.stack)}"


def _odd_of_groups(scene: Scene, odd: list[Odd]) -> list[Odd]:
    """With known sizes: only those whose own tensor, data or pipeline group waits for them; all, where none is."""
    if scene.sizes is None:
        return odd
    op = {rank.number: scene.what(group) for group in scene.groups for rank in group.ranks}
    world = max((rank.world or 0 for rank in scene.ranks), default=0) or len(scene.ranks)
    blamed: dict[int, str] = {}
    for name, members in scene.sizes.groups(world):
        known = [(number, op[number]) for number in members if number in op]
        counts = Counter(one for _, one in known if one.kind == COLLECTIVE)
        if not counts or len({one for _, one in known}) == 1:
            continue
        common, times = counts.most_common(1)[0]
        for number, one in known:
            if one != common and (times * 2 > len(known) or one.kind != COLLECTIVE):
                blamed.setdefault(number, name)
    kept = [Odd(one.number, one.node, one.pid, f"{one.why}; its {blamed[one.number]} waits for it")
            for one in odd if one.number is not None and one.number in blamed]
    return kept or odd


def _witnesses(scene: Scene) -> tuple[str, ...]:
    ranks = scene.ranks
    looked = [rank for rank in ranks if len(rank.samples) > 1]
    still = sum(group.kind == STUCK or not computes(rank) for group in scene.groups for rank in group.ranks
                if len(rank.samples) > 1)
    utils = [rank.gpu_util for rank in ranks if rank.gpu_util is not None]
    facts: tuple[tuple[str, Any], ...] = (
        ("still_stacks", looked and still * 10 >= len(looked) * 9),
        ("asleep", is_asleep(ranks)),
        ("process_state", any(rank.stuck_in or rank.is_stopped or (rank.is_gone and not rank.has_just_ended)
                              for rank in ranks)),
        # One at 0 %, the others spinning: seen, a rank asleep and 63 in its collective; all spinning says it less.
        ("gpu_pattern", len(utils) > 1 and (min(utils) == 0 and max(utils) >= 90)),
        ("silent_rank", (found := find_asleep(ranks)) and not found.is_busy), ("silent_nodes", scene.mute),
        ("missing_ranks", scene.missing and not scene.silent))
    return tuple(name for name, is_so in facts if is_so)


def _common_evidence(scene: Scene) -> tuple[str, ...]:
    lines = tell_groups(scene.groups[:6])
    lines += [f"{one.node} {one.why}" for one in scene.silent[:6]]
    if scene.missing:
        lines.append(f"no process was seen of rank {fold_numbers(scene.missing)}")
    reasons = Counter(rank.why for rank in scene.ranks if rank.why and not rank.samples)
    lines += [f"{count} without a stack: {why}" for why, count in reasons.most_common(3)]
    unused = [one for one in _late_mounts(scene) if one not in _mounts_in_use(scene)]
    lines += [f"{mount} does not answer on {node}, where no rank has a file open on it" for node, mount in unused[:4]]
    low = behind_in_flight(scene.ranks)
    if low:
        lines.append(f"flight recorder: {names_of(low)} behind the others")
    return tuple(lines)
