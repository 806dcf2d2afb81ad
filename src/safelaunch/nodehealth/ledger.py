"""The ledger of nodes: evidence against them over time, and which of them to exclude because of it.

Laws:
- Evidence halves with every `forget_after`, all of it at the same pace. So the time is known at which a score falls
  below the threshold: exclusions expire.
- One failure is one witness, however many lines there are, and a node has MOST_FAILURES witnesses at most.
- One cause on disjoint nodes of a run blames no node: what was inferred from it is void. Facts seen at the node stay.
- A person's `clear` removes earlier evidence, and no later one. A run takes back what it has itself measured as slow,
  and nothing else, when its speed does not come back without the node (`slow_disproved`).
- Weights are those of KINDS, whoever wrote the evidence.
- A node belongs to a cluster: n3 of another one is another machine (`of_cluster`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from safelaunch.launch.settings import Suspects

# A node is excluded from this score on. SURE evidence does that alone, for one half-life. Of MEDIUM two witnesses do it
# (nodes are blamed when seen twice), for a quarter of one when both are fresh. Of WEAK it takes four. The node that
# fails first is only suspected lightly, and with four ranks or more chance seldom hits one node four times.
THRESHOLD = 1.0
SURE, MEDIUM, WEAK = 2.0, 0.6, 0.3
HELD = 1.1                # excluded at once, for 23 h by default; inferred, so void where other nodes show it alone
BLAME_HALF_LIFE_S = 7 * 86400.0   # of what a verdict is told: suspects.forget_after's default
MOST_COMPARED = 200       # different sets of blamed nodes; a run has some dozens of failures
MOST_FAILURES = 4         # 8.0 at most: however much has gone wrong, a node is back after three half-lives
# Clocks of a cluster differ by less (munge refuses credentials beyond 5 minutes: munged(8), --ttl). What claims to come
# from later is not believed until then: it would never age.
SKEW_S = 3600.0

CLEARED, DISPROVED = "cleared", "slow_disproved"
RATE = "rate"             # made of the others' failures (nodehealth.nodeuse), and no failure itself
_Key = TypeVar("_Key", bound=Hashable)
_When = TypeVar("_When", float, tuple[int, float])
NEVER = (-1, -math.inf)
NEEDED = "without it the run would have too few nodes; a spare takes its place first"


class EvidenceKind(NamedTuple):
    """A kind of evidence: the weight of one witness, its name for people, and the reason of the weight."""

    weight: float
    what: str
    source: str


KINDS: dict[str, EvidenceKind] = {
    "person": EvidenceKind(SURE, "a person said so", "safelaunch nodes suspect: a person's request is final"),
    "lost": EvidenceKind(SURE, "went silent or died", "no answer within the lease, or Slurm says so: a fact"),
    RATE: EvidenceKind(SURE, "fails again and again",
                       "six failures or more in 90 days, and above 10 times the rate of the other nodes (slow.md)"),
    "gpu": EvidenceKind(SURE, "GPU hardware failed",
                        "the node's own report: Xid 79, uncorrectable ECC, a GPU that is gone"),
    "gpu_maybe": EvidenceKind(MEDIUM, "GPU hardware may have failed", "a verdict of little confidence"),
    "held": EvidenceKind(HELD, "what it needs is held by another process",
                         "the node is healthy: what was left there ends, or is ended, within a day"),
    "network": EvidenceKind(MEDIUM, "network failed at it",
                            "links flap and come back: from the second time on it is the node"),
    "hang": EvidenceKind(MEDIUM, "its ranks stood apart in a hang",
                         "the odd one of many often waits for somebody else"),
    "short_cycle": EvidenceKind(MEDIUM, "killed an attempt at its start",
                                "black holes: who ends jobs in seconds gets all the "
                                "next ones; max_without_progress (3) leaves time for two witnesses, not for four"),
    "checks_failed": EvidenceKind(MEDIUM, "failed a node check",
                                  "a full disk or a process left over passes: from the second time on it is the node"),
    "slow": EvidenceKind(SURE, "slows the others down",
                         "measured against all nodes of its job, more than once, after steps had become longer"),
    "first_to_fail": EvidenceKind(WEAK, "failed first", "who fails first is often only the first to notice"),
    CLEARED: EvidenceKind(0.0, "cleared by a person", "safelaunch nodes clear"),
    DISPROVED: EvidenceKind(0.0, "is not what slowed it down", "the speed did not come back without it"),
}


@dataclass(frozen=True)
class NodeEvidence:
    """One witness against a node, or an entry that clears it. `run` "": it is a person's."""

    node: str
    kind: str                    # of KINDS; another one is kept and counts nothing: a later version's
    t: float                     # epoch s
    why: str
    owner: str                   # the user whose run saw it, or who said it
    run: str = ""
    attempt: int | None = None
    fingerprint: str = ""        # of the cause: equal ones are the same cause
    cluster: str = ""            # Slurm's ClusterName; "" = not known: written down before clusters were

    @property
    def is_fact(self) -> bool:
        """Seen at the node itself, not inferred from how a training failed there."""
        return _weight(self) >= SURE

    @property
    def failure(self) -> tuple[str, int | None, str]:
        """The key of one witness: all evidence of one attempt, or of one person."""
        return (self.run, self.attempt, "" if self.run else self.owner)


class Standing(NamedTuple):
    """The score of a node. `until_t`: when it falls below THRESHOLD; None = it is below."""

    node: str
    score: float
    until_t: float | None
    counted: tuple[NodeEvidence, ...] = ()   # one of each failure that counts, the heaviest first
    known: tuple[NodeEvidence, ...] = ()     # all since it was last cleared, newest first
    void: bool = False                   # some of it does not count: its cause was seen on other nodes alone, too


class ExclusionTerm(NamedTuple):
    """A node to exclude until `until_t`, why, and by whose evidence."""

    node: str
    why: str
    owner: str
    until_t: float
    score: float


def weight_left(evidence: NodeEvidence, now: float, half_life_s: float) -> float:
    """What a witness counts now: its kind's weight, halved with every `half_life_s`; 0 of one from the future."""
    age_s = now - evidence.t
    if half_life_s <= 0 or not age_s >= -SKEW_S:
        return 0.0
    return float(_weight(evidence) * 2.0 ** -(max(0.0, age_s) / half_life_s))


def of_cluster(evidences: Iterable[NodeEvidence], cluster: str) -> tuple[NodeEvidence, ...]:
    """The evidence that counts on a cluster ("" = unknown), in its order. Evidence without a cluster counts while the
    ledger knows no other cluster.
    """
    known = tuple(evidences)
    is_alone = len({one.cluster for one in known if one.cluster} | ({cluster} if cluster else set())) <= 1
    return tuple(one for one in known if (one.cluster == cluster if one.cluster and cluster else is_alone))


def clusters_of(evidences: Iterable[NodeEvidence]) -> tuple[str, ...]:
    """The names of the clusters that evidence is from, sorted; "" is none."""
    return tuple(sorted({one.cluster for one in evidences} - {""}))


def standings(evidences: Iterable[NodeEvidence], now: float, half_life_s: float) -> tuple[Standing, ...]:
    """All nodes with evidence that was not cleared, the worst first, for any order of the evidence."""
    believed = sorted({one for one in evidences if one.t <= now + SKEW_S}, key=_order)
    void = _void_causes(believed)
    cleared = last_cleared(believed)
    disproved = _last_of(DISPROVED, believed, lambda one: (one.node, one.run), _in_its_run)
    of_node: dict[str, list[NodeEvidence]] = defaultdict(list)
    for one in believed:
        if one.kind == "slow" and _in_its_run(one) <= disproved.get((one.node, one.run), NEVER):
            continue
        if one.kind not in (CLEARED, DISPROVED) and one.t > cleared.get(one.node, -math.inf):
            of_node[one.node].append(one)
    found = [_standing(node, known, void, now, half_life_s) for node, known in of_node.items()]
    return tuple(sorted(found, key=lambda one: (-one.score, one.node)))


def blaming(evidences: Iterable[NodeEvidence], now: float) -> tuple[NodeEvidence, ...]:
    """Evidence of failures that blame a node, oldest first: of runs, MEDIUM or more, not void, not cleared since. That
    a node is slow is no failure.
    """
    believed = sorted({one for one in evidences if one.t <= now + SKEW_S}, key=_order)
    void, cleared = _void_causes(believed), last_cleared(believed)
    return tuple(one for one in believed
                 if one.run and one.kind not in (RATE, "slow") and _weight(one) >= MEDIUM
                 and one.t > cleared.get(one.node, -math.inf)
                 and (one.is_fact or (one.run, one.fingerprint) not in void))


def most_excluded(suspects: Suspects, nodes: int, spares: int = 0) -> int:
    """How many nodes a run of `nodes` may exclude at once. A number is taken as it is. A share is one node at least,
    and never less than the spares, which are there for that.
    """
    text = suspects.max_excluded
    if not text.endswith("%"):
        return int(text)
    return max(1, spares, int(nodes * float(text[:-1]) / 100))


def exclusions(
    evidences: Iterable[NodeEvidence], now: float, suspects: Suspects, *, nodes: int, spares: int = 0, run: str = "",
    among: Collection[str] | None = None, available: Collection[str] | None = None, asked: Collection[str] = (),
    replaced: int = 0,
) -> tuple[ExclusionTerm, ...]:
    """The nodes to exclude now: first those that this `run` itself has met, then the worst. `nodes` is what an attempt
    needs. `among`: only these can be excluded (all of its partition; None = unknown), because another name would use up
    the limit, and Slurm refuses unknown names. `available`: those of them that the run could get now (None = unknown);
    enough are left for it to start. `asked`: the user wants these by name, and Slurm refuses a job that both requires
    and excludes a node. `replaced` of them can still stay unused, because spares take their places.
    """
    bad = [one for one in suspected(evidences, now, suspects) if among is None or one.node in among]
    bad.sort(key=lambda one: not any(run and witness.run == run for witness in one.counted))   # stable: worst first
    wanted = [one for one in bad if one.node in asked][replaced:]
    bad = [one for one in bad if one not in wanted]
    room = len(set(available)) - nodes if available is not None else len(bad)
    kept_out: list[ExclusionTerm] = []
    for one in bad[: most_excluded(suspects, nodes, spares)]:
        costs = available is None or one.node in available
        # Of a node that is down an exclusion costs nothing now; but where the others are too few, the run waits for it.
        if room < (1 if costs else 0):
            continue
        room -= costs
        kept_out.append(_exclusion(one))
    return tuple(kept_out)


def why_readmitted(
    evidences: Iterable[NodeEvidence], node: str, now: float, suspects: Suspects, *, is_full: bool,
) -> str:
    """Why a node is not among the `exclusions` any more. `is_full`: as many are excluded as max_excluded allows."""
    known = tuple(evidences)
    one = next((one for one in standings(known, now, suspects.forget_after_s) if one.node == node), None)
    if one is not None and one.until_t is not None:
        return (f"others count more, and only so many are excluded (suspects.max_excluded: {suspects.max_excluded})"
                if is_full else "without it the run would have too few nodes")
    if one is not None and one.void:
        return "other nodes have shown the same cause"
    if any(said.kind == DISPROVED and said.node == node for said in known):
        return "the speed did not come back without it"
    is_cleared = one is None and any(said.kind == CLEARED and said.node == node for said in known)
    return "a person has cleared it" if is_cleared else "the evidence against it has faded"


def suspected(evidences: Iterable[NodeEvidence], now: float, suspects: Suspects) -> tuple[Standing, ...]:
    """The nodes with evidence enough to be excluded, worst first, whether they can be or not."""
    if not suspects.exclude:
        return ()
    return tuple(one for one in standings(evidences, now, suspects.forget_after_s) if one.until_t is not None)


def strangers(
    evidences: Iterable[NodeEvidence], now: float, suspects: Suspects, there: Collection[str],
) -> tuple[Standing, ...]:
    """The nodes that would be excluded, were they among those that are there."""
    return tuple(one for one in suspected(evidences, now, suspects) if one.node not in there)


def needed(
    evidences: Iterable[NodeEvidence], now: float, suspects: Suspects, kept_out: Collection[str], most: int,
    there: Collection[str],
) -> dict[str, str]:
    """Suspect → why it is still used: `kept_out` are fewer than `most`, so the run would have too few nodes."""
    if len(kept_out) >= most:
        return {}
    return {one.node: f"{describe(one)}; {NEEDED}" for one in suspected(evidences, now, suspects)
            if one.node in there and one.node not in kept_out}


def describe(standing: Standing) -> str:
    """Why a node is suspected, in one line."""
    first = standing.counted[0] if standing.counted else standing.known[0]
    what = KINDS[first.kind].what if first.kind in KINDS else first.kind
    more = len(standing.counted) - 1
    return f"{what}: {first.why}" + (f" (and {more} more)" if more > 0 else "")


def _standing(
    node: str, known: list[NodeEvidence], void: set[tuple[str, str]], now: float, half_life_s: float,
) -> Standing:
    """The node's weight: the heaviest evidence of each failure, `void` causes left out, halved each half-life."""
    alive = [one for one in known if one.is_fact or (one.run, one.fingerprint) not in void]
    witnesses: dict[tuple[str, int | None, str], NodeEvidence] = {}
    for one in alive:
        best = witnesses.get(one.failure)
        if best is None or weight_left(one, now, half_life_s) > weight_left(best, now, half_life_s):
            witnesses[one.failure] = one
    heaviest = sorted(witnesses.values(), key=lambda one: (-weight_left(one, now, half_life_s), _order(one)))
    counted = tuple(one for one in heaviest[:MOST_FAILURES] if weight_left(one, now, half_life_s) > 0)
    total = math.fsum(weight_left(one, now, half_life_s) for one in counted)
    until = now + half_life_s * math.log2(total / THRESHOLD) if total >= THRESHOLD else None
    return Standing(node, total, until, counted, tuple(reversed(known)), len(alive) < len(known))


def _void_causes(evidences: Iterable[NodeEvidence]) -> set[tuple[str, str]]:
    """(run, fingerprint) of causes that two failures of a run saw on nodes that have none in common.

    Within a run only: it is the same code. "exit code 1" of another run says nothing about this one's black hole.
    """
    blamed: dict[tuple[str, str], dict[int | None, set[str]]] = defaultdict(lambda: defaultdict(set))
    for one in evidences:
        if one.run and one.fingerprint and _weight(one) and not one.is_fact:
            blamed[(one.run, one.fingerprint)][one.attempt].add(one.node)
    return {cause for cause, failures in blamed.items() if _has_disjoint(failures.values())}


def _has_disjoint(blamed: Iterable[set[str]]) -> bool:
    """Whether two of the sets have nothing in common. Of forged failures without end only so many are compared."""
    sets = sorted({tuple(sorted(nodes)) for nodes in blamed}, key=lambda nodes: (len(nodes), nodes))[:MOST_COMPARED]
    return any(set(one).isdisjoint(other) for index, one in enumerate(sets) for other in sets[:index])


def last_cleared(evidences: Iterable[NodeEvidence]) -> Mapping[str, float]:
    """When each node was last cleared."""
    return _last_of(CLEARED, evidences, lambda one: one.node, lambda one: one.t)


def _last_of(
    kind: str, evidences: Iterable[NodeEvidence], key: Callable[[NodeEvidence], _Key],
    when: Callable[[NodeEvidence], _When],
) -> Mapping[_Key, _When]:
    """When each was said last of a node, or of a node by a run."""
    last: dict[_Key, _When] = {}
    for one in evidences:
        if one.kind == kind and (key(one) not in last or when(one) > last[key(one)]):
            last[key(one)] = when(one)
    return last


def _in_its_run(one: NodeEvidence) -> tuple[int, float]:
    """Its place among what its run has said: by attempts where they are known, as the clocks of hosts differ
    (simulated: test_found "a node that was wrongly called slow is taken back by a host whose clock is behind").
    """
    return (-1, one.t) if one.attempt is None else (one.attempt, 0.0)


def _exclusion(standing: Standing) -> ExclusionTerm:
    assert standing.until_t is not None
    return ExclusionTerm(standing.node, describe(standing), standing.counted[0].owner, standing.until_t, standing.score)


def _weight(evidence: NodeEvidence) -> float:
    kind = KINDS.get(evidence.kind)
    return kind.weight if kind else 0.0


def _order(evidence: NodeEvidence) -> tuple[float, str, str, str, int, str, str, str, str]:
    attempt = -1 if evidence.attempt is None else evidence.attempt
    return (evidence.t, evidence.node, evidence.kind, evidence.run, attempt, evidence.owner, evidence.why,
            evidence.fingerprint, evidence.cluster)


def blamed_before(known: Iterable[NodeEvidence], run: str, attempt: int, until_t: float) -> dict[str, int]:
    """node → failures that blame it, each once, of other attempts and runs, known until that time and not cleared. A
    node that only failed first or was slow is not blamed: mostly another one was the reason.
    """
    others = [one for one in known
              if one.t <= until_t and one.kind != RATE and (one.run, one.attempt) != (run, attempt)]
    counts = {one.node: sum(_weight(witness) >= MEDIUM and witness.kind != "slow" for witness in one.counted)
              for one in standings(others, until_t, BLAME_HALF_LIFE_S)}
    return {node: count for node, count in counts.items() if count}
