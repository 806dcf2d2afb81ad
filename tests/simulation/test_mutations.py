"""Each invariant fires: a bug put into the code under test is found by the scenario that is there for it.

And the bugs that matter most are found by chance as well, among a few seeds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("greenlet", reason="the simulation needs greenlet (pip install .[dev])")

from safelaunch.decide.budget import alone, nanback
from safelaunch.decide.budget.budget import GiveUp
from safelaunch.decide.ends import ended
from safelaunch.decide.facts import patience
from safelaunch.decide.facts.actions import BenchNodes
from safelaunch.decide.facts.seen import Observation
from safelaunch.decide.jobs import takeover
from safelaunch.decide.nodes import checks, slowness
from safelaunch.decide.turn import between
from safelaunch.guard.io import callers, control
from safelaunch.node.guard import fence
from safelaunch.node.guard.fence import KILL, TERM, TaskFence
from safelaunch.nodehealth.slow.bench import Speed, judge_speed
from safelaunch.run.fold.state import State
from safelaunch.run.io import runfolder
from safelaunch.run.plan import Plan
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.slurm import Pace
from safelaunch.supervisor import loop, observe
from safelaunch.supervisor.attempt import attempts, resuming
from safelaunch.supervisor.common import lostprogress, slurmends
from safelaunch.supervisor.ends import endings, handover
from safelaunch.supervisor.ends import takeover as births
from safelaunch.supervisor.io.fence import Fencer
from safelaunch.supervisor.io.successor import Successor
from safelaunch.supervisor.jobs import nextjob, standbys
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.nodes import bootchecks, slowsearch, suspectchecks
from safelaunch.supervisor.state.suspicion import Suspicions
from safelaunch.supervisor.state.tasks import Work
from tests.simulation import bench, guards
from tests.simulation.clients import Client
from tests.simulation.golden import GOLDEN
from tests.simulation.process import SimWorld
from tests.simulation.run import run, run_seed
from tests.simulation.scenario import Fault, Scenario

# Three nodes and a spare; one of the three slows them down from step 60 on.
_SLOW = replace(GOLDEN["nothing goes wrong"], nodes=3, spare_nodes=1, pool=5, steps=280, step_s=2.5, save_every=20,
                slow="node", slow_node="n1", slow_step=60, slow_then="restart")
_NAN = replace(GOLDEN["nothing goes wrong"], steps=90, step_s=1.0, save_every=10, nan="always", nan_step=28)
ALONE = {"watchers": 0}   # a watch would put right what the mutation breaks
Patch = tuple[Any, str, Any]


def _golden(name: str, **changes: Any) -> Scenario:
    return replace(GOLDEN[name], **changes)


def _nothing(*words: Any) -> None:
    """Do nothing."""


def _while_it_trains(state: State, seen: Observation, plan: Plan) -> tuple[str, ...]:
    return seen.nodes if seen.live is not None and state.slower is not None else ()


def _measure_at_once(lead: Leader, *words: Any, observe: Any = observe.observe_attempt) -> None:
    observe(lead, *words)
    if lead.state.slower is not None:
        nodes = BenchNodes(lead.job.nodes, "mutation")
        lead.tasks.begin(Work.BENCH_NODES, slowsearch.bench(lead.suspects, lead.tasks, lead.say, "bench_nodes", nodes))


def _accuse_the_first(*words: Any, judge: Any = judge_speed) -> Any:
    judged = judge(*words)
    return (judged[0]._replace(speed=Speed.SLOW, reasons=("mutation",)), *judged[1:])


def _no_step(*words: Any) -> Iterator[float]:
    """An act that is over at once."""
    yield from ()


def _all_nodes_of_the_job(suspects: Suspicions, *words: Any) -> Generator[float, None, tuple[str, ...]]:
    yield from ()
    job = suspects.journal.state.job
    assert job is not None
    return job.nodes


def _give_up_at_once(state: State, plan: Any, *seen: Any) -> GiveUp | None:
    return GiveUp("mutation", 10, "enough") if any(one.ended == "failed" for one in state.attempts) else None


def _fail(*words: Any) -> None:
    raise RuntimeError("mutation")


def _no_dependency(script: str, options: tuple[str, ...] = ()) -> tuple[str, ...]:
    return ("sbatch", "--parsable", script)


def _claim_nothing(self: Leader, action: str, own_gen: bool = False) -> int:
    self.journal.note_claim(self.journal.claim_number + 1, self.here.world.now_s())
    self.standbys.confirm(self.now_s)
    return self.journal.claim_number


def _launch_twice(*words: Any, launch: Any = SimWorld.launch) -> Any:
    launch(*words)
    return launch(*words)


def _judge(change: Callable[[TaskFence, Any], Any], then: Callable[[TaskFence, Any], Any] = lambda fence,
           act: act) -> Patch:
    """The real fence, that takes another record for what it has seen, or does something else about it."""
    def judge(self: TaskFence, now: float, seen: Any, todo: list[Any], judge: Any = TaskFence._judge) -> None:
        acts: list[Any] = []
        judge(self, now, change(self, seen), acts)
        todo += [act for act in (then(self, act) for act in acts) if act is not None]
    return TaskFence, "_judge", judge


def _as_it_is(fence: TaskFence, seen: Any) -> Any:
    return seen


def _instead_of_kill(fence: TaskFence, act: Any, other: Any) -> Any:
    if act[0] != KILL:
        return act
    fence.kill_at = None
    return other


def _judge_at_once(self: TaskFence, now: float, seen: Any, todo: list[Any], judge: Any = TaskFence._judge) -> None:
    self.looks_alone, lease_s, self.lease_s = True, self.lease_s, -1.0
    judge(self, now, seen, todo)
    self.lease_s = lease_s


def _heard(fence: TaskFence, seen: Any) -> Any:
    if seen[1]:
        fence.heard = fence.ticked
    return seen


def _long_lease(self: TaskFence, now: float, lease_s: float, *words: Any, init: Any = TaskFence.__init__) -> None:
    init(self, now, 20 * lease_s, *words)


def _hold_nobody(self: TaskFence, now: float, todo: list[Any]) -> None:
    self.ticked = now


def _hold_in_vain(self: TaskFence, now: float, todo: list[Any], hold: Any = TaskFence._hold_if_woken) -> None:
    hold(self, now, todo)
    self._let_go(todo)


def _look_once(self: TaskFence, now: float, todo: list[Any], look: Any = TaskFence._read_if_silent) -> None:
    if self.looked < 0:
        look(self, now, todo)


_NO_FENCE: list[Patch] = [(Fencer, "is_done", lambda *words: True),
                          (ended, "is_over", lambda live, seen: live.killed_t is not None)]
_NO_CLAIM: list[Patch] = [(Leader, "claim", _claim_nothing), (Leader, "find_other", _nothing)]
_NO_KILL_SWITCH: list[Patch] = [(runfolder, "read_requests", lambda *words: [])]
_NO_CANCEL: list[Patch] = [(slurmends, "ending_of", lambda *words: "preempted")]
_NO_CAP: list[Patch] = [(owner, "affordable", _all_nodes_of_the_job) for owner in (nextjob, handover)]
_DOUBLE_LAUNCH: list[Patch] = [(SimWorld, "launch", _launch_twice)]
_BLIND_QUEUEING: list[Patch] = [(Successor, "waiting", lambda self, result: () if result.is_ok else None),
                                (Successor, "job_from", _nothing)]
_AS_REMEMBERED: list[Patch] = [(Client, "refresh", _nothing)]
_NO_SUPERVISOR: list[Patch] = [(loop, "boot", _fail)]
_NO_SWITCH: Patch = (guards, "SWITCH_MARGIN_S", 1e6)
_CUT = _golden("nothing goes wrong", spare_nodes=1, steps=200, **ALONE, faults=(Fault("worker_cut", 15.0, 120.0),))
_CUT_AND_FROZEN = replace(_CUT, spare_nodes=0, faults=(
    Fault("worker_cut", 15.0, 120.0), Fault("freeze_one", 16.0, 110.0, 1)))
_ASLEEP = replace(_CUT, faults=(Fault("worker_silent", 15.0, 60.0),))


MUTATIONS: dict[str, tuple[Scenario, list[Patch], str]] = {
    "an attempt starts before the last one is fenced": (
        _golden("a rank dies", ignores_term=True),
        _NO_FENCE, "write at once"),
    "names are believed as a client remembers them": (
        _golden("nothing goes wrong", spare_nodes=1, steps=200, fs_late_s=60.0, **ALONE,
                faults=(Fault("worker_cut", 15.0, 120.0),)), _AS_REMEMBERED, "write at once"),
    "nothing is claimed, and nobody else's claim is heeded": (
        _golden("the batch host is cut off", steps=120), _NO_CLAIM, "write at once"),
    "each attempt is launched twice": (
        _golden("nothing goes wrong"), _DOUBLE_LAUNCH, "attempt 1 is launched twice"),
    "an attempt that a dead supervisor announced is forgotten": (
        _golden("the batch host falls silent", at_calls=((16, "freeze"),)), [(births, "presume_launched", _nothing)],
        "attempt 1 is launched twice"),
    "the queue is not believed": (
        _golden("nothing goes wrong", steps=120), _BLIND_QUEUEING, "more than two jobs of this run are pending"),
    "no supervisor is ever born": (
        _golden("nothing goes wrong"), _NO_SUPERVISOR, "trains unsupervised"),
    "a run on hold goes on": (
        _golden("a rank dies", steps=100, faults=(Fault("hold", 5.0, 200.0), Fault("rank_dies", 60.0))),
        [(between, "BETWEEN", tuple(row for row in between.BETWEEN if row is not between._held))],
        "put the run on hold"),
    "a change that Slurm refuses is asked for again and again": (
        _golden("a worker dies, without a spare", via="watch", site="no_scontrol", steps=200,
                faults=(Fault("worker_silent", 150.0, 900.0),)),
        [(handover, "_note_refusal", lambda *words: False)], "calls to Slurm in"),
    "the kill switch is never looked at": (
        _golden("a teammate touches the kill switch", steps=200), _NO_KILL_SWITCH, "a person said kill"),
    "a run goes on at each time limit, though nothing is ever saved": (
        _golden("nothing goes wrong", steps=100_000, save_every=100_000, limit_min=2, handles_signal=False),
        [(between, "BETWEEN", tuple(row for row in between.BETWEEN if row is not between._endless))],
        "brought no checkpoint"),
    "a person's cancel is taken for a preemption": (
        _golden("a person cancels the job", **ALONE), _NO_CANCEL, "a person said scancel"),
    "nothing is ever launched": (
        _golden("nothing goes wrong"), [(attempts, "launch", _nothing)], "the run is lost"),
    "the end is not written down": (
        _golden("nothing goes wrong"), [(endings, "finish", _no_step)], "the run is lost"),
    "the next job does not wait for this one": (
        _golden("nothing goes wrong"), [(slurm, "sbatch", _no_dependency)], "starts while"),
    "a lost node is excluded whatever that costs": (
        _golden("a worker dies, without a spare", pool=3, **ALONE), _NO_CAP, "waits for ever"),
    "commands are not paced": (
        _golden("the batch host dies"), [(Pace, "take", lambda *words: True)], "calls to Slurm within a second"),
    "the time left is asked for all the time": (
        _golden("the batch host dies", steps=150), [(observe, "LIMIT_S", 0.5)], "calls to Slurm in"),
    "the first failure ends the run": (
        _golden("a rank dies"), [(between, "why_give_up", _give_up_at_once)], "though nothing stood in its way"),
    "what one node alone shows is not tried without it": (
        _golden("a node on which the program fails later, with a spare"), [(alone, "shown_alone", lambda state: ())],
        "though nothing stood in its way"),
    "an attempt that was told to end counts as complete": (
        _golden("the time limit comes"), [(ended, "how_it_ended", lambda live, seen: "completed")], "complete"),
    "checkpoints are not found": (
        _golden("a rank dies", save_every=5), [(resuming, "find_resume", _nothing)], "is whole"),
    "nobody looks at an attempt's first steps": (
        _golden("a rank dies", steps=120, faults=(Fault("forgets", 1.0), Fault("rank_dies", 75.0))),
        [(lostprogress, "judge_start", _nothing)], "nobody says so"),
    "a supervisor dies of a bug": (
        _golden("nothing goes wrong"), [(observe, "publish_heartbeat", _fail)], "died of an exception"),
    "a supervisor waits without sleeping": (
        _golden("nothing goes wrong"), [(Leader, "timeout_s", lambda self: 0.0)], "time stands still"),
    # Of the guard itself:
    "a lease is twenty times as long as its leader believes": (
        _CUT, [(TaskFence, "__init__", _long_lease)], "write at once"),
    "a guard ends nobody, whatever the record says": (
        _CUT, [_judge(_as_it_is, lambda fence, act: _instead_of_kill(fence, act, None))], "write at once"),
    "a guard asks its ranks to end, and does not end them": (
        replace(_CUT, ignores_term=True),
        [_judge(_as_it_is, lambda fence, act: _instead_of_kill(fence, act, (TERM, None)))], "write at once"),
    "an address in the record is taken for a sign of life": (
        _CUT, [_judge(_heard)], "write at once"),
    "a record that cannot be read is taken for a live one": (
        _CUT_AND_FROZEN, [_judge(lambda fence, seen: ("live", *seen[1:]) if seen[0] == "unreadable" else seen)],
        "write at once"),
    "nobody looks whether the checks of nodes have had their time": (
        _golden("nothing goes wrong", has_checks=True, checks=(("n1", "hangs"),)), [(bootchecks, "POLL_S", 60.0)],
        "the checks of nodes have taken"),
    "a restart in place waits for a check that nobody has asked for": (
        _golden("a rank dies", has_checks=True), [(checks, "_light_limit_s", lambda mode, pause_s: 5.0)],
        "waits for a check"),
    "a node that an attempt uses is checked fully": (
        _golden("a worker dies, with a spare", has_checks=True, faults=(Fault("gpu_dies", 15.0),)),
        [(suspectchecks, "suspects_beside", lambda blamed, there, used, lost: tuple(used))], "which an attempt uses"),
    "no node has failed a check, and the run ends for that": (
        _golden("nothing goes wrong", has_checks=True), [(checks, "why_no_full_set", lambda *words: "mutation")],
        "nothing stood in its way"),
    "a planned stop waits for no checkpoint": (
        replace(_SLOW, save_every=130, handles_signal=False), [(patience, "AS_LONG_AS_IT_TAKES_S", 0.0)],
        "of steps"),
    "the run stops for its speed without end": (
        _SLOW, [(slowness, "MOST_PLANNED", 99), (slowness, "nodes_to_measure", _while_it_trains)],
        "experiments were made"),
    "nodes are measured while they train": (
        _SLOW, [(observe, "observe_attempt", _measure_at_once)], "are measured beside"),
    "the first of many nodes is called slow": (
        replace(_SLOW, slow="other"), [(bench, "judge_speed", _accuse_the_first)], "are called slow, and are not"),
    "the swap proves what one wants": (
        replace(_SLOW, slow="wrong"), [(slowsearch, "judge_swap", lambda search, *_, **__: bool(search.slow) or None)],
        "the proof says True"),
    "what was wrong is not taken back": (
        replace(_SLOW, slow="wrong"), [(slowsearch, "_withdraw", lambda *words: [])], "stay excluded"),
    "nothing is left out after a NaN": (
        replace(_NAN, nan="once"), [(nanback, "cut_off", lambda cut, found: cut)], "weights that are no numbers"),
    "a NaN that comes back ends nothing": (
        _NAN, [(nanback, "MOST_SAME", 99), (nanback, "last_good_step", lambda *_, **__: 20)], "again and again"),
    "silence alone ends ranks": (   # between two pings: the leader has not given the node up yet
        replace(_CUT, faults=(Fault("worker_cut", 14.6, 120.0),)),
        [_judge(lambda fence, seen: ("ended", *seen[1:]))], "whose record is live"),
    "a record that has moved on ends ranks within their lease": (
        _golden("the batch host dies"), [(TaskFence, "_judge", _judge_at_once)], "its lease is 10 s"),
    "the record is looked at once": (
        _CUT, [(TaskFence, "_read_if_silent", _look_once)], "write at once"),
    "the record is looked at once a minute": (
        _CUT, [(fence, "RECORD_CHECK_S", 60.0)], "write at once"),
    "a guard believes what its node remembers of the record": (
        replace(_CUT, fs_late_s=60.0),
        [(guards.Task, "_read", lambda task, afresh, read=guards.Task._read: read(task, False))], "write at once"),
    "ranks that wake up with their node are neither ended in their sleep nor held": (
        _ASLEEP, [_NO_SWITCH, (TaskFence, "_hold_if_woken", _hold_nobody)], "write at once"),
    "ranks that wake up are let go before their guard has looked": (
        _ASLEEP, [_NO_SWITCH, (TaskFence, "_hold_if_woken", _hold_in_vain)], "write at once"),
}


@functools.cache
def is_fine(scenario: Scenario) -> bool:
    """Whether the code as it is breaks nothing there; test_golden.py has shown that of the golden scenarios."""
    return scenario in GOLDEN.values() or not run(scenario).violations


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutation_breaks_the_invariant_that_is_there_for_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, patches, expected = MUTATIONS[name]
    assert is_fine(scenario), "the scenario itself is fine"
    for owner, attribute, value in patches:
        monkeypatch.setattr(owner, attribute, value)
    violations = run(scenario, until=expected).violations
    assert any(expected in one for one in violations), violations


# What must be found among which seeds. Some begin late: a run with a bug in it can take a minute of processor time.
BY_CHANCE: dict[str, tuple[list[Patch], str, range]] = {
    "skip the fence": (_NO_FENCE, "write at once", range(30, 90)),
    "skip the claim": (_NO_CLAIM, "write at once", range(36, 90)),
    "ignore the kill switch": (_NO_KILL_SWITCH, "a person said kill", range(20, 80)),
    "forget a person's cancel": (_NO_CANCEL, "a person said scancel", range(8, 68)),
    "exclude without a cap": (_NO_CAP, "waits for ever", range(20)),
    "launch twice": (_DOUBLE_LAUNCH, "is launched twice", range(5)),
    "queue without looking": (_BLIND_QUEUEING, "more than two jobs of this run are pending", range(5)),
    "leave the training unsupervised": (_NO_SUPERVISOR, "trains unsupervised", range(5)),
}


@pytest.mark.parametrize("name", BY_CHANCE)
def test_bug_is_found_by_chance(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patches, expected, seeds = BY_CHANCE[name]
    for owner, attribute, value in patches:
        monkeypatch.setattr(owner, attribute, value)
    assert any(expected in violation for seed in seeds
               for violation in run_seed(seed, until=expected).violations)


def test_supervisors_that_take_the_run_from_each_other_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was before pulses carried a promise (seed 834 of those days)."""
    scenario = _golden("the batch host is cut off", faults=(Fault("batch_cut", 11.0, 45.0),), steps=120, step_s=1.5)
    assert not run(scenario).violations
    is_dead = takeover.is_dead
    monkeypatch.setattr(takeover, "is_dead", lambda signs, now_s: is_dead(
        replace(signs, promise_s=1.0, is_known=True), now_s))
    monkeypatch.setattr(control.ControlServer, "_standby", lambda self, node: None if node in self._shunned else (
        self.standbys.setdefault(node, callers.Guard(node, control.STANDBY_TASK, 0))))
    monkeypatch.setattr(standbys, "_may_be_watched_unheard", lambda *words: False)
    assert any("false takeover" in one for one in run(scenario).violations)
