"""A scenario: all of one simulated run that is not the project's own code. A seed makes one; JSON carries it."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from safelaunch.slurm import via

# What can go wrong, and for how long (seconds; None: it is over at once).
KINDS: dict[str, tuple[float, float] | None] = {
    "rank_dies": None, "all_ranks_fail": None, "truncate": None, "corrupt": None,
    "leader_dies": None, "leader_pauses": (1.0, 8.0), "leader_dies_at_call": None,
    "worker_crashes": (60.0, 900.0), "worker_silent": (3.0, 900.0), "batch_crashes": (60.0, 900.0),
    "batch_silent": (3.0, 900.0), "worker_cut": (2.0, 300.0), "batch_cut": (2.0, 300.0), "one_way_cut": (2.0, 120.0),
    "freeze": (1.0, 45.0), "freeze_one": (1.0, 90.0), "refuses": (2.0, 60.0), "unreadable": (2.0, 30.0),
    "loses_links": None, "wall_jump": None,
    "slurm_hung": (5.0, 300.0), "slurm_gone": (5.0, 300.0), "manners": None, "preempt": None,
}
# Drawn for some of the seeds, behind all else: a shared filesystem as sites have them (docs/filesystems.md).
LATE_S = (3.0, 10.0, 30.0, 60.0)
CLOCKS_S = (-600.0, -90.0, 0.0, 0.0, 45.0, 300.0)
SERVER_KINDS: dict[str, tuple[float, float] | None] = {"away": (60.0, 600.0), "lies_links": None, "flaky": (2.0, 60.0)}
PEOPLE = ("kill", "kill-now", "scancel", "scancel_successor")
VIAS = via.CHOICES
# What a site forbids: dependencies (refused in words of its own); commands that its nodes do not have; or jobs from
# compute nodes, which sbatch there refuses, a mere test included.
SITES = {
    "": (), "no_dependency": (), "refuses_sbatch": (), "no_sbatch": ("sbatch",), "no_scontrol": ("sbatch", "scontrol"),
    "no_sinfo": ("sinfo",),
}
# How a node answers its checks: fails always, fails once and is well, or never answers. All others are well.
CHECKS = ("fails", "fails_once", "hangs")
# ... and how it answers those after a failure, drawn apart: only its full check fails or hangs, or it talks nonsense.
CHECKS_AFTER = ("fails_fully", "hangs_fully", "babbles")
AFTER_FAILURE = ("auto", "before", "before", "off")
# Steps take longer because of a node that is slow; for another reason; or for another reason, while a node is slow.
SLOW = ("node", "other", "wrong")
# before_resize: works, ends by an error, never ends, or is killed in the middle the first time.
RESIZES = ("works", "works", "fails", "hangs", "dies")
# What becomes of another run, for whose end this one waits: it ends in one of three ways; it goes on in a second job,
# of which Slurm was told or not; it dies without a word; or its second job comes a while after the first one's end.
BEFORE = ("completes", "gives_up", "is_stopped", "moves", "moves_unsaid", "vanishes", "returns")
MANNERS = ("times_out_done", "times_out_undone", "late", "garbled", "empty", "lies", "refused")


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong at `t`, for `length_s`; what `x` means depends on the kind."""

    kind: str
    t: float
    length_s: float = 0.0
    x: int = 0
    words: tuple[str, ...] = ()

    @property
    def end_t(self) -> float:
        """When it is over."""
        return self.t + self.length_s

    def __str__(self) -> str:
        length = f" for {self.length_s:.0f} s" if self.length_s else ""
        return f"{self.t:7.1f} s  {self.kind}{length} ({self.x}) {','.join(self.words)}".rstrip()


@dataclass(frozen=True)
class Scenario:
    """Topology, training, latencies and faults."""

    seed: int = 0
    nodes: int = 2
    spare_nodes: int = 0
    pool: int = 4                    # nodes of the cluster
    steps: int = 100
    step_s: float = 1.0
    save_every: int = 20
    save_s: float = 1.0
    load_s: float = 2.0
    limit_min: int = 30
    slurmd_timeout_s: float = 300.0
    fs_latency_s: float = 0.0
    fs_late_s: float = 0.0           # names that others made, moved or removed are seen late by so much, at most
    fs_clock_s: float = 0.0          # the file server's clock against everybody's
    net_latency_s: float = 0.0005
    name_s: float = 0.0              # how long a name server takes for one name
    handles_signal: bool = True
    ignores_term: bool = False
    standby: bool = True
    watchers: int = 1
    via: str = "auto"                # restart.via
    site: str = ""                   # one of SITES
    has_sacct: bool = False
    preserve_s: float = 0.0          # preserve_site.for
    words: str = "22.05"             # slurmstepd's, by release; "later": of one that nobody knows yet
    checks: tuple[tuple[str, str], ...] = ()   # node, how it answers its checks, of CHECKS
    has_checks: bool = False         # checks.boot
    allreduce: bool = False          # checks.allreduce
    after_failure: str = "auto"      # checks.after_failure
    slow: str = ""                   # why steps take longer from slow_step on, of SLOW; "": they do not
    slow_node: str = ""              # the node that is slow by its measurements
    slow_step: int = 0
    slow_then: str = "report"
    min_nodes: int = 0               # 0: only with all
    before_resize: str = ""          # how it goes, of RESIZES; "": there is none
    nan: str = ""                    # "once", "always": the loss is NaN from nan_step on, and so is what is saved then
    nan_step: int = 0
    bad_node: str = ""               # ranks on it fail by an error of the program's kind, and on no other node
    bad_step: int = 0                # ... at this step; 0: before the first one
    before: str = ""                 # what becomes of a run that this one waits for, of BEFORE; "": it waits for none
    before_any: bool = False         # any end of that one will do
    before_s: float = 0.0            # when its first job ends
    notify: str = ""                 # what becomes of messages to people (delivery.py); "": nobody is told
    has_log: bool = False            # the training's output comes into the run folder, as its pump brings it
    faults: tuple[Fault, ...] = ()
    at_calls: tuple[tuple[int, str], ...] = field(default=())       # (number of an outside call, what goes wrong then)

    @property
    def faults_end_t(self) -> float:
        """When the last fault is over."""
        at_calls_t = 120.0 if self.at_calls else 0.0
        return max((fault.end_t for fault in self.faults), default=0.0) + at_calls_t

    def to_json(self) -> str:
        """One line that `from_json` reads back."""
        return json.dumps(asdict(self))


def from_json(text: str) -> Scenario:
    """The scenario of a line by `to_json`."""
    raw: dict[str, Any] = json.loads(text)
    faults = tuple(Fault(**{**fault, "words": tuple(fault["words"])}) for fault in raw.pop("faults"))
    at_calls = tuple((int(number), str(kind)) for number, kind in raw.pop("at_calls"))
    checks = tuple((str(node), str(how)) for node, how in raw.pop("checks", ()))
    return Scenario(**raw, faults=faults, at_calls=at_calls, checks=checks)


def make(seed: int) -> Scenario:
    """The scenario of a seed."""
    rng = random.Random(f"scenario {seed}")
    nodes = rng.choice((1, 2, 2, 3, 4))
    spare = rng.choice((0, 0, 0, 1)) if nodes > 1 else 0
    steps = rng.randrange(40, 160)
    scenario = Scenario(
        seed=seed, nodes=nodes, spare_nodes=spare, pool=nodes + spare + rng.choice((1, 2, 3)), steps=steps,
        step_s=rng.choice((0.5, 1.0, 2.0)), save_every=rng.choice((5, 10, 20, 50)), save_s=rng.choice((0.1, 1.0, 5.0)),
        load_s=rng.choice((0.5, 2.0, 10.0)), limit_min=rng.choice((4, 8, 20, 20)),
        slurmd_timeout_s=rng.choice((30.0, 60.0, 300.0)), fs_latency_s=rng.choice((0.0, 0.0, 0.003, 0.02)),
        net_latency_s=rng.choice((0.0002, 0.001, 0.01)), handles_signal=rng.random() < 0.6,
        ignores_term=rng.random() < 0.1, standby=rng.random() < 0.8, watchers=rng.choice((0, 1, 1, 2)))
    span_s = min(steps * scenario.step_s + 20.0, 300.0)
    faults = [_fault(rng, rng.choice(list(KINDS)), span_s) for _ in range(rng.choice((1, 1, 2, 2, 3, 4)))]
    if rng.random() < 0.25:
        faults.append(_fault(rng, rng.choice(PEOPLE), span_s))
    if rng.random() < 0.08:
        faults.append(Fault("hold", round(rng.uniform(0.0, span_s), 2), round(20.0 * 20.0 ** rng.random(), 1)))
    if rng.random() < 0.05:
        scenario = replace(scenario, preserve_s=rng.choice((30.0, 120.0)))
        faults += [_fault(rng, kind, span_s) for kind in ("extend", "release") if rng.random() < 0.5]
    # Half of all runs go on in the usual way, on a site that allows all.
    if rng.random() < 0.5:
        scenario = replace(scenario, via=rng.choice(VIAS), site=rng.choice(list(SITES)), has_sacct=rng.random() < 0.5)
        if rng.random() < 0.5:   # so that there is a next job
            faults.append(_fault(rng, "preempt", span_s))
    if random.Random(f"forgets {seed}").random() < 0.1:   # drawn apart, too
        faults.append(Fault("forgets", 0.0))
    words = random.Random(f"words {seed}").choice(("22.05", "26.05"))   # drawn apart: seeds keep all else
    notify = random.Random(f"notify {seed}").choice(("", "", "works", "fails", "hangs", "mixed"))   # apart, too
    in_order = tuple(sorted(faults, key=lambda fault: fault.t))
    return _with_bad_node(_follows(_smaller(_with_nan(_slower(_with_checks(_at_a_checkpoint(_on_a_server(replace(
        scenario, words=words, notify=notify, faults=in_order), span_s))))))))


def _with_bad_node(scenario: Scenario) -> Scenario:
    """One of fourteen seeds has a node on which the program fails, and a spare beside it; half of these have no other
    fault, and must complete. Drawn apart, too.
    """
    rng = random.Random(f"bad node {scenario.seed}")
    if rng.random() > 0.07 or scenario.nodes < 2 or scenario.slow or scenario.nan or scenario.min_nodes:
        return scenario
    node, step = f"n{rng.randrange(scenario.nodes)}", rng.choice((0, rng.randrange(1, scenario.steps)))
    pool = max(scenario.pool, scenario.nodes + 2)
    if rng.random() < 0.5:
        scenario = replace(scenario, faults=(), at_calls=(), checks=(), has_checks=False)
    return replace(scenario, bad_node=node, bad_step=step, spare_nodes=1, pool=pool)


def _follows(scenario: Scenario) -> Scenario:
    """One of ten seeds waits for another run (--after, --after-any). Drawn apart, too."""
    rng = random.Random(f"before {scenario.seed}")
    if rng.random() > 0.1:
        return scenario
    return replace(scenario, before=rng.choice(BEFORE), before_any=rng.random() < 0.5,
                   before_s=round(rng.uniform(5.0, 240.0), 1))


def _smaller(scenario: Scenario) -> Scenario:
    """A quarter of the seeds with two nodes and more may go on with fewer; most of these lose some, and have no others
    to get. Drawn apart, too.
    """
    rng = random.Random(f"smaller {scenario.seed}")
    if rng.random() > 0.25 or scenario.nodes < 2 or scenario.slow:
        return scenario
    # Without sinfo nobody knows that an excluded node is the last one.
    pool = scenario.nodes + scenario.spare_nodes + (rng.choice((0, 0, 1)) or scenario.site == "no_sinfo")
    losses = tuple(_fault(rng, rng.choice(("worker_crashes", "worker_silent", "batch_crashes")), 120.0)
                   for _ in range(rng.choice((1, 2, 2, 3))))
    return replace(scenario, min_nodes=rng.randrange(1, scenario.nodes), before_resize=rng.choice(("", *RESIZES)),
                   pool=pool, checks=tuple(one for one in scenario.checks if int(one[0][1:]) < pool),
                   faults=tuple(sorted((*scenario.faults, *losses), key=lambda fault: fault.t)))


def _with_nan(scenario: Scenario) -> Scenario:
    """One of sixteen seeds goes back before a NaN. Drawn apart, too."""
    rng = random.Random(f"nan {scenario.seed}")
    if rng.random() > 0.06 or scenario.slow:
        return scenario
    return replace(scenario, nan=rng.choice(("once", "once", "always")), nan_step=rng.randrange(10, scenario.steps))


def _slower(scenario: Scenario) -> Scenario:
    """Some of the seeds with three nodes and more print step times, and act on them; one of four of these is healthy.
    Drawn apart, too.
    """
    rng = random.Random(f"slow {scenario.seed}")
    if rng.random() > 0.06 or scenario.nodes + scenario.spare_nodes < 3:
        return scenario
    node = f"n{rng.randrange(scenario.nodes + scenario.spare_nodes)}"
    return replace(scenario, slow=rng.choice(("healthy", *SLOW)), slow_node=node, slow_step=rng.randrange(55, 110),
                   slow_then=rng.choice(("exclude_next", "restart", "restart")), steps=rng.randrange(250, 330),
                   step_s=rng.choice((2.0, 2.5)), save_every=rng.choice((10, 20, 50)))


def _with_checks(scenario: Scenario) -> Scenario:
    """A third of the seeds check their nodes, of which one or two are bad; drawn apart, too."""
    rng = random.Random(f"checks {scenario.seed}")
    if rng.random() > 0.35:
        return scenario
    bad = rng.sample(range(scenario.pool), min(scenario.pool, rng.choice((0, 1, 1, 2))))
    scenario = replace(
        scenario, has_checks=True, checks=tuple((f"n{node}", rng.choice(CHECKS)) for node in sorted(bad)))
    rng = random.Random(f"checks after {scenario.seed}")   # apart: the earlier seeds' nodes are bad as they were
    known = dict(scenario.checks)
    more = [(f"n{node}", rng.choice(CHECKS_AFTER)) for node in range(scenario.pool)
            if f"n{node}" not in known and rng.random() < 0.2]
    deaths = tuple(_fault(rng, "gpu_dies", 60.0) for _ in range(rng.choice((0, 1, 2, 3))))
    spare = 1 if scenario.nodes > 1 and deaths and rng.random() < 0.7 else scenario.spare_nodes
    paired = random.Random(f"allreduce {scenario.seed}")   # apart, too
    if paired.random() < 0.3:
        known |= dict(more)
        well = [f"n{node}" for node in range(scenario.pool) if f"n{node}" not in known]
        more += [(node, "breaks_pairs") for node in well[:1] if paired.random() < 0.7]
        scenario = replace(scenario, allreduce=True)
    return replace(scenario, after_failure=rng.choice(AFTER_FAILURE), checks=(*scenario.checks, *more),
                   spare_nodes=spare, pool=scenario.pool + spare - scenario.spare_nodes,
                   faults=tuple(sorted((*scenario.faults, *deaths), key=lambda fault: fault.t)))


def _at_a_checkpoint(scenario: Scenario) -> Scenario:
    """Some who touch the kill switch want the next checkpoint first; drawn apart, too."""
    if random.Random(f"checkpoint {scenario.seed}").random() > 0.5:
        return scenario
    return replace(scenario, faults=tuple(
        replace(fault, kind="checkpoint") if fault.kind == "kill" else fault for fault in scenario.faults))


def _on_a_server(scenario: Scenario, span_s: float) -> Scenario:
    """With chances of its own: the scenarios of the other seeds stay as they were."""
    rng = random.Random(f"server {scenario.seed}")
    if rng.random() > 0.4:
        return scenario
    kinds = [kind for kind in SERVER_KINDS if rng.random() < 0.25]
    faults = (*scenario.faults, *(_fault(rng, kind, span_s) for kind in kinds))
    return replace(scenario, fs_late_s=rng.choice(LATE_S), fs_clock_s=rng.choice(CLOCKS_S),
                   faults=tuple(sorted(faults, key=lambda fault: fault.t)))


def _fault(rng: random.Random, kind: str, span_s: float) -> Fault:
    between = KINDS.get(kind, SERVER_KINDS.get(kind))
    length_s = 0.0 if between is None else round(between[0] * (between[1] / between[0]) ** rng.random(), 1)
    words: tuple[str, ...] = ()
    if kind == "manners":
        words = tuple(rng.choice(MANNERS) for _ in range(rng.randrange(1, 4)))
    # The first seconds are where most things happen.
    t = rng.uniform(0.0, 15.0) if rng.random() < 0.25 else rng.uniform(0.0, span_s)
    return Fault(kind, round(t, 2), length_s, rng.randrange(100), words)
