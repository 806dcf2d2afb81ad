"""What the watch makes of a run, from its folder and Slurm's word: every row, and what must never be acted on."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.base.model import Event, Request
from safelaunch.decide.nodes.nodes import kept_out
from safelaunch.run.acts import NOTE
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import Exclusion, Intent, State
from safelaunch.run.heartbeat import Heartbeat
from safelaunch.run.heartbeat import parse as parse_heartbeat
from safelaunch.slurm import jobstates
from safelaunch.slurm.slurmtext import JobAccount, KnownJob
from safelaunch.watch import watchfacts
from safelaunch.watch.watch import judge
from safelaunch.watch.watched import (
    Act,
    Cancel,
    Free,
    Judgement,
    MakeSmaller,
    Note,
    Notes,
    Queue,
    Relax,
    SlurmAnswer,
    StartNow,
    Watched,
    WriteEnd,
    act_of,
    read_notes,
)
from tests.pure.decide.situations import PLAN
from tests.tables import each

NOW = 10_000.0
LONG_S = 10_000.0
KILL, HOLD = Request("kill", "bob", 5.0), Request("hold", "bob", 5.0)
HEARTBEAT = Heartbeat(7, 3, "n0", "12", "running", 1, 40, "13")
UP = (("idle", "n[0-3]"),)


def events(*said: tuple[str, dict[str, Any]], gen: int = 1) -> list[Event]:
    return [Event(float(number), gen, number, "n0", kind, data) for number, (kind, data) in enumerate(said, 1)]


def state(*said: tuple[str, dict[str, Any]]) -> State:
    return fold(events(*said))


SUBMITTED = ("submitted", {"job": "12"})
STARTED = ("job_started", {"job": "12", "nodes": ["n0", "n1"], "batch_host": "n0"})
ATTEMPT = ("attempt_started", {"attempt": 1, "job": "12", "nodes": ["n0", "n1"]})
NEXT = ("submitted", {"job": "13", "successor_of": "12"})
RAN = state(SUBMITTED, STARTED, ATTEMPT, NEXT)
ALONE = state(SUBMITTED, STARTED, ATTEMPT)


def run(known: State = RAN, **changes: Any) -> Watched:
    return Watched(PLAN, known, HEARTBEAT, 0.0, LONG_S)._replace(**changes)


def running(**changes: Any) -> KnownJob:
    known = KnownJob("12", "RUNNING", "alice", nodelist="n[0-1]", batch_host="n0", partition="main",
                     start="2026-11-21T20:51:56", elapsed_s=27.0, name="run.r1")
    return known._replace(**changes)


def waiting(reason: str = "Priority", **changes: Any) -> KnownJob:
    return KnownJob("13", "PENDING", "alice", reason, partition="main", name="run.r1")._replace(**changes)


def word(*jobs: KnownJob, absences: int = 0, same_s: float = LONG_S, **more: Any) -> SlurmAnswer:
    return SlurmAnswer(jobs, absences, same_s, **more)


def asked(*jobs: KnownJob, **more: Any) -> SlurmAnswer:
    """… and sinfo has said that four nodes are there."""
    return word(*jobs, nodes=UP, **more)


def gone(*ended: KnownJob, **more: Any) -> SlurmAnswer:
    return word(*ended, absences=2, **{"accounts": {}, **more})


BEHIND = waiting("Dependency", dependency="afterany:12(unfulfilled),singleton(unfulfilled)")
LIMBO = running(nodelist="n1")
HANGS = running(state="COMPLETING", nodelist="n1")


@each(("watched", "slurm", "row"), [
    (run(state(SUBMITTED, STARTED, ("completed", {"why": "done"})), silent_s=LONG_S), gone(), "ended"),
    (run(plan=PLAN._replace(cluster="local"), silent_s=LONG_S), gone(), "local"),
    (run(mine=False, silent_s=LONG_S), gone(), "foreign"),
    (run(silent_s=LONG_S), SlurmAnswer(None), "unanswered"),
    (run(), word(running(), BEHIND), "running"),
    (run(silent_s=LONG_S), word(running(), BEHIND), "silent"),
    (run(silent_s=LONG_S), word(running(state="SUSPENDED"), BEHIND), "running"),
    (run(silent_s=LONG_S), word(running(state="NEWWORD"), BEHIND), "running"),
    (run(silent_s=LONG_S), word(running(state="SUSPENDED", nodelist="n1"), BEHIND), "running"),
    (run(silent_s=LONG_S), word(running(nodelist=""), BEHIND), "silent"),
    (run(silent_s=LONG_S), word(running(nodelist="n["), BEHIND), "silent"),
    (run(silent_s=LONG_S), word(running(batch_host="", nodelist="n1"), BEHIND), "silent"),
    (run(), word(LIMBO, BEHIND), "running"),
    (run(), word(HANGS, BEHIND, same_s=60.0), "completing"),
    (run(), word(HANGS, waiting("Resources")), "completing"),
    (run(silent_s=10.0), word(HANGS, BEHIND), "completing"),
    (run(State()), word(HANGS), "completing"),
    (run(), word(waiting()), "waiting"),
    (run(), word(waiting("JobHeldUser")), "held"),
    (run(), word(waiting("launch failed requeued held")), "held"),
    (run(requests=(KILL,)), word(waiting("Priority", excluded="n0")), "waiting"),
    (run(), word(waiting("BadConstraints")), "impossible"),
    (run(State()), gone(), "submitting"),
    (run(silent_s=LONG_S), word(absences=1), "doubt"),
    (run(silent_s=10.0, state=state(SUBMITTED, STARTED)), gone(), "doubt"),
    (run(silent_s=LONG_S, at_home=False), gone(), "gone"),
    (run(silent_s=LONG_S, at_home=False, elsewhere="beta"), word(absences=1), "gone"),
    (run(silent_s=LONG_S, requests=(HOLD,)), gone(), "held"),
], ids=["ended", "local", "of somebody else", "no answer", "well", "silent", "suspended", "a word of a later Slurm",
        "suspended without its host", "no nodelist", "torn nodelist", "no batch host", "pulse moves without its host",
        "just completing", "completing, the next one is free", "completing, its supervisor lives",
        "completing, unknown to the journal", "in the queue",
        "held by a person", "launch failed", "killed while it waits", "too few nodes, and not for our sake",
        "submission cut off", "one answer", "its supervisor lives", "perhaps of another cluster", "of another cluster",
        "on hold"])
def test_nothing_is_done(watched: Watched, slurm: SlurmAnswer, row: str) -> None:
    judged = judge(watched, slurm, NOW)
    assert (judged.row, judged.act, judged.asks) == (row, None, frozenset())


@each(("watched", "slurm", "act"), [
    (run(silent_s=400.0), asked(LIMBO, BEHIND), Cancel("12", "13", ("n0",), "", ("n0",))),
    (run(ALONE, silent_s=400.0), asked(LIMBO), Queue("12", ("n0",), "", suspects=("n0",))),
    (run(silent_s=400.0, requests=(KILL,)), asked(LIMBO), Cancel("12", None, ("n0",), "", ("n0",))),
    (run(silent_s=400.0, notes=Notes(cancelled=("13",))), asked(LIMBO), Cancel("12", None, ("n0",), "", ("n0",))),
    (run(heartbeat=replace(HEARTBEAT, host="n1"), silent_s=901.0), asked(LIMBO, BEHIND),
     Cancel("12", "13", ("n0",), "", ("n0",))),
    (run(heartbeat=None, silent_s=400.0), asked(LIMBO, BEHIND), Cancel("12", "13", ("n0",), "", ("n0",))),
    (run(silent_s=400.0), asked(HANGS, BEHIND), Free("13", ("n1",), "", ("n1",))),
    (run(ALONE, silent_s=400.0), asked(HANGS, accounts={}), Queue(None, ("n1",), "", suspects=("n1",))),
    (run(), word(waiting("DependencyNeverSatisfied")), Free("13", (), "")),
    (run(requests=(HOLD, KILL)), word(waiting("JobHeldUser")), Cancel("13", None, (), "")),
    (run(silent_s=400.0), gone(), Queue(None, (), "")),
    (run(replace(ALONE, via="watch"), silent_s=400.0), gone(), Queue(None, (), "")),
    (run(replace(ALONE, via="watch")), word(running()), Queue("12", (), "", beside=True)),
    (run(ALONE, plan=PLAN._replace(restart=PLAN.restart._replace(via="watch"))), word(running()),
     Queue("12", (), "", beside=True)),
    (run(replace(RAN, via="watch")), word(running(), accounts={"13": JobAccount("NODE_FAIL")}),
     Queue("12", (), "", beside=True)),
    (run(replace(RAN, via="watch")), word(running(), accounts={}), Note("13", "")),
    (run(silent_s=400.0), word(LIMBO, accounts={}), Note("13", "")),
    (run(silent_s=400.0), word(LIMBO, accounts={"13": JobAccount("CANCELLED", "1001")}), Note("13", "")),
    (run(replace(RAN, successor=None, next_cancelled="13"), silent_s=400.0), asked(LIMBO),
     Cancel("12", None, ("n0",), "", ("n0",))),
    (run(), word(running(), waiting(state="CANCELLED")), Note("13", "")),
    (run(silent_s=400.0), gone(running(state="COMPLETED")), WriteEnd("completed", 0, "")),
    (run(silent_s=400.0), gone(accounts={"12": JobAccount("COMPLETED")}), WriteEnd("completed", 0, "")),
    (run(silent_s=400.0, notes=Notes(requeued=3)), gone(), WriteEnd("gave_up", 10, "")),
    (run(state(SUBMITTED, STARTED, ATTEMPT, ("attempt_ended", {"attempt": 1, "how": "completed"})), silent_s=400.0),
     gone(), WriteEnd("completed", 0, "")),
], ids=["limbo", "limbo, no job behind it", "limbo, killed", "limbo, its next job cancelled by a person",
        "limbo, its standby silent too", "limbo, no pulse ever", "hangs at its end", "hangs, no job behind it",
        "a dependency that never comes", "held, and stopped by a person", "vanished",
        "vanished from a site without sbatch on nodes",
        "nodes may not call sbatch", "restart.via: watch", "the next job lost by Slurm", "the next job gone",
        "limbo, its next job gone", "limbo, its next job cancelled, sacct", "limbo, its next job cancelled, journal",
        "the next job cancelled by a person", "ended well, squeue", "ended well, sacct", "jobs without progress",
        "completed before its leader wrote it down"])
def test_the_run_goes_on_or_ends(watched: Watched, slurm: SlurmAnswer, act: Act) -> None:
    judged = judge(watched, slurm, NOW)
    assert judged.act is not None, judged
    assert replace(judged.act, why="") == act, judged


NO_EXCLUSIONS = PLAN._replace(suspects=PLAN.suspects._replace(exclude=False))


@each(("watched", "slurm", "exclude"), [
    (run(silent_s=400.0), asked(LIMBO, BEHIND), ("n0",)),
    (run(silent_s=400.0), asked(HANGS, BEHIND), ("n1",)),
    (run(silent_s=400.0, notes=Notes(needs_excluded=("n1",))), gone(nodes=UP), ("n1",)),
    (run(replace(RAN, unfit=(("n1", "its disk is full"),)), silent_s=400.0), gone(nodes=UP), ("n1",)),
], ids=["limbo", "hangs", "its leader left a node out", "a node failed its checks"])
def test_a_node_that_is_lost_or_unfit_now_is_kept_from_the_next_job_without_exclusions_too(
        watched: Watched, slurm: SlurmAnswer, exclude: tuple[str, ...]) -> None:
    act = judge(watched._replace(plan=NO_EXCLUSIONS), slurm, NOW).act
    assert isinstance(act, Cancel | Free | Queue)
    assert act.exclude == exclude == kept_out(watched.state, exclude)


PERSON = "was cancelled by a person"


@each(("watched", "slurm", "why"), [
    (run(silent_s=400.0, requests=(KILL,)), gone(), "bob touched kill"),
    (run(silent_s=400.0, scancelled=("12",)), gone(), f"job 12 {PERSON} (its output says so)"),
    (run(silent_s=400.0), gone(running(state="CANCELLED")), f"job 12 {PERSON} (squeue)"),
    (run(silent_s=400.0), gone(waiting(state="CANCELLED")), f"job 13 {PERSON} (squeue)"),
    (run(silent_s=400.0), gone(accounts={"12": JobAccount("CANCELLED", "1001")}),
     "job 12 was cancelled by user 1001 (sacct)"),
    (run(silent_s=400.0, notes=Notes(cancelled=("13",))), gone(), f"job 13 {PERSON} (squeue)"),
    (run(silent_s=400.0), gone(waiting(id="14", state="CANCELLED")), f"job 14 {PERSON} (squeue)"),
    (run(silent_s=400.0, notes=Notes(cancelled=("14",))), gone(), f"job 14 {PERSON} (squeue)"),
    (run(replace(RAN, successor=None, next_cancelled="13"), silent_s=400.0), gone(),
     f"job 13 {PERSON} before it started"),
    (run(ALONE, silent_s=400.0, scancelled=("12",)), word(HANGS), f"job 12 {PERSON} (its output says so)"),
    (run(state(SUBMITTED), silent_s=400.0), gone(running(state="CANCELLED")), f"job 12 {PERSON} (squeue)"),
], ids=["kill switch", "slurmstepd's line", "squeue", "squeue, the next job", "sacct", "noted earlier",
        "squeue, a job that the journal does not know", "the same, noted earlier", "noted by its leader",
        "while it hangs", "before it ever started"])
def test_a_persons_word_ends_the_run(watched: Watched, slurm: SlurmAnswer, why: str) -> None:
    judged = judge(watched, slurm, NOW)
    assert judged.act == WriteEnd("stopped", 12, why)


@each("evidence", ["output", "squeue", "sacct"])
def test_our_own_cancel_is_no_persons_word(evidence: str) -> None:
    known = fold(events(("intent", {"claim": 4, "act": "cancel", "job": "12"}),
                        ("outcome", {"claim": 4, "act": "cancel", "ok": True}), gen=4), RAN)
    watched = run(known, silent_s=400.0, scancelled=("12",) * (evidence == "output"))
    slurm = gone(*[running(state="CANCELLED")] * (evidence == "squeue"),
                 accounts={"12": JobAccount("CANCELLED", "1001")} if evidence == "sacct" else {})
    assert isinstance(judge(watched, slurm, NOW).act, Queue)


@each(("watched", "slurm"), [
    (run(silent_s=400.0), word(running(state="CANCELLED"), absences=1)),
    (run(silent_s=400.0), word(running(state="CANCELLED"), BEHIND)),
    (run(state(SUBMITTED), heartbeat=None), word(running(state="CANCELLED"), absences=1)),
    (run(heartbeat=replace(HEARTBEAT, over=True)), word(running(state="CANCELLED"), absences=1)),
    (run(), word(running(state="CANCELLED"), absences=1)),
    (run(silent_s=400.0, quiet_s=0.0), word(running(state="CANCELLED"), absences=2)),
], ids=["no other job", "the next one waits", "it had never started", "its leader has just left",
        "its leader gave a pulse just now", "somebody has acted since Slurm was asked"])
def test_a_scancel_is_written_down_at_first_sight(watched: Watched, slurm: SlurmAnswer) -> None:
    assert judge(watched, slurm, NOW).act == Note("12", f"job 12 {PERSON} (squeue)")


def test_a_scancel_of_a_job_that_the_journal_does_not_know_is_written_down() -> None:
    judged = judge(run(ALONE, silent_s=400.0), word(running(), waiting(state="CANCELLED")), NOW)
    assert judged.act == Note("13", f"job 13 {PERSON} (squeue)")
    noted = run(ALONE, silent_s=400.0, notes=Notes(cancelled=("13",)))
    assert isinstance(judge(noted, asked(LIMBO), NOW).act, Cancel), "and no other is queued"


@each(("watched", "slurm"), [
    (run(), word(running(id="11", state="CANCELLED"), running(), BEHIND)),
    (run(notes=Notes(cancelled=("13",))), word(running(), waiting(state="CANCELLED"))),
    (run(orphaned=("13",)), word(running(), waiting(state="CANCELLED"))),
], ids=["a job before the one that runs", "noted already", "a node guard's"])
def test_a_scancel_is_not_written_down(watched: Watched, slurm: SlurmAnswer) -> None:
    assert not isinstance(judge(watched, slurm, NOW).act, Note)


def test_a_cancel_of_a_node_guard_is_no_persons_word() -> None:
    watched = run(ALONE, silent_s=400.0, scancelled=("12",), orphaned=("12",))
    assert judge(watched, gone(running(state="CANCELLED")), NOW).act == Queue(None, (), judge(
        watched, gone(), NOW).text)


def test_a_job_that_came_after_a_cancelled_one_undoes_that() -> None:
    known = state(SUBMITTED, STARTED, NEXT, ("submitted", {"job": "14", "successor_of": "12"}))
    judged = judge(run(known, silent_s=400.0, notes=Notes(cancelled=("13",))), gone(), NOW)
    assert isinstance(judged.act, Queue)


# --- nodes that are kept out ----------------------------------------------------------------------------------------


@each("slurm", [word(LIMBO, BEHIND), word(HANGS, BEHIND), word(HANGS, accounts={})],
                         ids=["limbo", "hung", "hung, no job behind it"])
def test_nodes_are_asked_for_before_any_is_kept_out(slurm: SlurmAnswer) -> None:
    judged = judge(run(ALONE if len(slurm.jobs or ()) == 1 else RAN, silent_s=400.0), slurm, NOW)
    assert (judged.act, judged.asks) == (None, frozenset({"nodes"}))


@each("slurm", [word(LIMBO), word(HANGS, accounts={}), word(absences=2, accounts={})], ids=["limbo", "hung", "gone"])
@each(("known", "refused"), [
    (ALONE, ("QOSMaxSubmitJobPerUserLimit",)), (replace(ALONE, intents=(Intent(3, "queue_successor"),)), ()),
], ids=["refused", "announced"])
def test_nodes_are_not_asked_for_while_the_act_has_to_wait(
    known: State, refused: tuple[str, ...], slurm: SlurmAnswer
) -> None:
    notes = Notes(refused=refused, needs_excluded=("n0",))
    soon, later = (run(known, silent_s=1000.0, quiet_s=quiet_s, notes=notes) for quiet_s in (60.0, 1000.0))
    assert not judge(soon, slurm, NOW).asks
    assert judge(later, slurm, NOW).asks == frozenset({"nodes"})


@each(("nodes", "exclude"), [
    ((("idle", "n[1-3]"), ("down*", "n0")), ("n0",)), ((("idle", "n1"), ("down*", "n0")), ()), ((), ("n0",)),
], ids=["enough", "too few", "no clear answer"])
def test_no_more_nodes_are_kept_out_than_the_run_can_spare(
    nodes: tuple[tuple[str, str], ...], exclude: tuple[str, ...]
) -> None:
    judged = judge(run(silent_s=400.0), word(LIMBO, BEHIND, nodes=nodes), NOW)
    assert isinstance(judged.act, Cancel) and judged.act.exclude == exclude


def test_a_first_job_whose_users_dependency_failed_is_not_freed_and_a_later_one_is() -> None:
    mine = PLAN._replace(sbatch=(*PLAN.sbatch, ("dependency", "afterok:7")))
    first = run(state(SUBMITTED), plan=mine)
    told = judge(first, word(waiting("DependencyNeverSatisfied", id="12")), NOW)
    assert told.act is None and "slurm.dependency" in told.text
    later = judge(run(plan=mine), word(waiting("DependencyNeverSatisfied")), NOW)
    assert isinstance(later.act, Free)


def test_a_job_behind_silent_nodes_waits_where_there_are_no_others() -> None:
    judged = judge(run(silent_s=400.0), word(HANGS, BEHIND, nodes=(("idle", "n0"), ("comp*", "n1"))), NOW)
    assert (judged.row, judged.act) == ("completing", None) and "too few nodes" in judged.text


# --- the other ways of the next job ---------------------------------------------------------------------------------


REQUEUED = fold(events(("intent", {"claim": 5, "act": "requeue", "job": "12"}),
                       ("outcome", {"claim": 5, "act": "requeue", "ok": True}),
                       ("resubmitted", {"job": "12", "exclude": ["n1"]}), gen=5), ALONE)


def test_a_requeued_job_is_let_go_and_kept_from_the_nodes_that_its_leader_named() -> None:
    job = running(state="PENDING", reason="BeginTime", nodelist="", excluded="n2")
    act = judge(run(REQUEUED, silent_s=400.0), word(job), NOW).act
    assert isinstance(act, StartNow) and (act.job, act.exclude) == ("12", ("n2", "n1"))


@each(("known", "requests"), [(REQUEUED, (HOLD,)), (REQUEUED, (KILL,)), (ALONE, ())],
                         ids=["on hold", "killed", "requeued by an administrator"])
def test_another_requeued_job_waits(known: State, requests: tuple[Request, ...]) -> None:
    job = running(state="PENDING", reason="BeginTime", nodelist="")
    assert judge(run(known, silent_s=400.0, requests=requests), word(job), NOW).act is None


def test_a_leader_that_asked_for_a_next_job_is_the_second_witness() -> None:
    watched = run(ALONE, heartbeat=replace(HEARTBEAT, over=True), notes=Notes(is_needed=True, needs_excluded=("n1",)))
    act = judge(watched, word(absences=1, accounts={}, nodes=UP), NOW).act
    assert isinstance(act, Queue) and act.exclude == ("n1",)


@each(("quiet_s", "is_asked"), [(100.0, False), (300.0, True)])
def test_sbatch_is_asked_less_and_less_often_where_it_refuses(quiet_s: float, is_asked: bool) -> None:
    watched = run(ALONE, silent_s=400.0, quiet_s=quiet_s, notes=Notes(refused=("QOSMaxSubmitJobPerUserLimit",) * 2))
    judged = judge(watched, gone(), NOW)
    assert isinstance(judged.act, Queue) == is_asked, judged


def test_nothing_is_queued_behind_a_job_where_dependencies_are_refused() -> None:
    refused = Notes(refused=("Batch job submission failed: Job dependency problem",))
    watched = run(replace(ALONE, via="watch"), notes=refused)
    assert judge(watched, word(running()), NOW).act is None
    assert isinstance(judge(watched._replace(silent_s=400.0), gone(), NOW).act, Queue)


def test_a_job_in_limbo_is_ended_first_where_no_job_can_be_queued_behind_it() -> None:
    refused = Notes(refused=("Batch job submission failed: Job dependency problem",))
    for watched in (run(ALONE, notes=refused), run(replace(ALONE, via="resubmit"))):
        act = judge(watched._replace(silent_s=400.0), asked(LIMBO), NOW).act
        assert isinstance(act, Cancel) and (act.job, act.successor) == ("12", None), act
    ended = fold(events(("cancelled", {"job": "12"})), ALONE)
    assert isinstance(judge(run(ended, silent_s=400.0), gone(), NOW).act, Queue)


# --- history --------------------------------------------------------------------------------------------------------


def test_history_is_asked_before_a_vanished_run_goes_on() -> None:
    judged = judge(run(silent_s=400.0), word(absences=2), NOW)
    assert (judged.act, judged.asks) == (None, frozenset({"sacct"}))


def test_a_standby_on_a_living_node_gets_time_to_act() -> None:
    judged = judge(run(heartbeat=replace(HEARTBEAT, host="n1"), silent_s=400.0), word(LIMBO, BEHIND), NOW)
    assert (judged.row, judged.act) == ("limbo", None)


@each("slurm", [asked(LIMBO, BEHIND), asked(HANGS, BEHIND), gone()], ids=["limbo", "hung", "gone"])
def test_an_announced_act_is_given_time_for_its_outcome(slurm: SlurmAnswer) -> None:
    announced = replace(RAN, intents=(Intent(3, "queue_successor"),))
    assert judge(run(announced, silent_s=400.0, quiet_s=60.0), slurm, NOW).act is None
    assert judge(run(announced, silent_s=400.0, quiet_s=200.0), slurm, NOW).act is not None


# --- exclusions that keep a run from starting -----------------------------------------------------------------------


def excluding(*nodes: str) -> State:
    return replace(RAN, exclusions=tuple(Exclusion(node, "lost") for node in nodes))


@each(("own", "listed", "nodes", "keep", "drop"), [
    ("", "n[0-2]", UP, ("n1", "n2"), ("n0",)),
    ("", "n[0-3]", UP, ("n2", "n3"), ("n0", "n1")),
    ("n3", "n[0-3]", UP, ("n2", "n3"), ("n0", "n1")),
    ("", "n[0-2]", (("idle", "n[0-1]"), ("down*", "n[2-3]")), ("n2",), ("n0", "n1")),
    ("", "n[0-2]", (("mixed", "n0"), ("allocated", "n1"), ("idle*", "n2"), ("idle~", "n3")), ("n1", "n2"), ("n0",)),
], ids=["the oldest goes", "two go", "not the user's own", "a dead node stays out", "busy and sleeping nodes count"])
def test_exclusions_give_way_by_as_many_nodes_as_the_run_needs(
    own: str, listed: str, nodes: tuple[tuple[str, str], ...], keep: tuple[str, ...], drop: tuple[str, ...]
) -> None:
    watched = run(excluding("n0", "n1", "n2", "n3"), plan=PLAN._replace(sbatch=(("exclude", own),) if own else ()))
    judged = judge(watched, word(waiting("BadConstraints", excluded=listed), nodes=nodes), NOW)
    assert isinstance(judged.act, Relax), judged
    assert (judged.act.job, judged.act.keep, judged.act.drop) == ("13", keep, drop)


def test_a_stopped_run_gets_the_nodes_back_that_keep_its_job_from_starting_and_ending() -> None:
    judged = judge(run(excluding("n0", "n1"), requests=(KILL,)),
                   word(waiting("BadConstraints", excluded="n[0-1]"), nodes=(("idle", "n[0-2]"),)), NOW)
    assert isinstance(judged.act, Relax) and judged.act.drop == ("n0",), judged
    assert "a person has stopped it" in judged.text


@each("reason", [
    "BadConstraints", "ReqNodeNotAvail, UnavailableNodes:n0", "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved",
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", "NodeDown",
])
def test_states_of_nodes_are_asked_for_before_exclusions_give_way(reason: str) -> None:
    judged = judge(run(excluding("n0")), word(waiting(reason, excluded="n0")), NOW)
    assert (judged.act, judged.asks) == (None, frozenset({"nodes"}))


@each(("own", "nodes", "same_s"), [
    ("", UP, 0.0), ("n0", UP, LONG_S), ("", UP, LONG_S),
], ids=["seen once", "the user's own", "enough nodes are up without it"])
def test_exclusions_stay(own: str, nodes: tuple[tuple[str, str], ...], same_s: float) -> None:
    watched = run(excluding("n0"), plan=PLAN._replace(sbatch=(("exclude", own),) if own else ()))
    judged = judge(watched, word(waiting("ReqNodeNotAvail", excluded="n0"), nodes=nodes, same_s=same_s), NOW)
    assert judged.act is None


# --- laws -------------------------------------------------------------------------------------------------------


JOBS = st.lists(st.builds(
    KnownJob, id=st.sampled_from(["12", "13", "14_[1-3%1]"]), state=st.sampled_from(
        [*sorted(jobstates.FINISHED), *sorted(jobstates.QUEUED), "RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING",
         "NEW"]),
    user=st.just("alice"), reason=st.sampled_from(["", "Priority", "Dependency", "BadConstraints", "JobHeldUser"]),
    nodelist=st.sampled_from(["", "n0", "n[0-1]", "n1", "n["]), batch_host=st.sampled_from(["", "n0"]),
    excluded=st.sampled_from(["", "n0", "n[0-3]"]), dependency=st.sampled_from(["", "afterany:12(unfulfilled)"]),
    elapsed_s=st.floats(0, 1e15), name=st.just("run.r1")), max_size=3).map(tuple)
WORDS = st.builds(SlurmAnswer, JOBS, st.integers(0, 3), st.sampled_from([0.0, 60.0, LONG_S]),
                  st.sampled_from([None, {}, {"12": JobAccount("CANCELLED", "0")}]), st.sampled_from([None, UP]))
STATES = st.sampled_from([RAN, ALONE, State(), state(SUBMITTED), excluding("n0"), replace(RAN, via="watch")])
RUNS = st.builds(lambda known, silent_s, quiet_s, requests, scancelled: run(
    known, silent_s=silent_s, quiet_s=quiet_s, requests=requests, scancelled=scancelled),
    STATES, st.sampled_from([0.0, 100.0, 400.0, LONG_S]), st.sampled_from([0.0, LONG_S]),
    st.sampled_from([(), (KILL,), (HOLD,)]), st.sampled_from([(), ("12",), ("13",)]))


@given(RUNS, WORDS)
def test_a_moving_pulse_is_never_acted_against(watched: Watched, slurm: SlurmAnswer) -> None:
    judged = judge(watched._replace(silent_s=10.0), slurm, NOW)
    assert not isinstance(judged.act, Cancel)
    if any(job.state == "RUNNING" for job in slurm.jobs or ()):
        assert not isinstance(judged.act, Queue) or judged.act.beside


@given(RUNS, WORDS)
def test_nothing_is_queued_after_a_persons_word(watched: Watched, slurm: SlurmAnswer) -> None:
    killed = watched._replace(requests=(KILL,))
    assert not isinstance(judge(killed, slurm, NOW).act, Queue)


@given(RUNS)
def test_a_blind_watch_does_nothing(watched: Watched) -> None:
    assert judge(watched, SlurmAnswer(None), NOW).act is None


@given(RUNS, WORDS)
def test_an_ended_run_is_left_alone_but_for_a_job_that_waits(watched: Watched, slurm: SlurmAnswer) -> None:
    ended = fold(events(("stopped", {"why": "bob"})), watched.state)
    left = watchfacts.waiting_job(slurm)
    act = judge(watched._replace(state=ended), slurm, NOW).act
    assert act is None or (left is not None and isinstance(act, Cancel) and act.job == left.id)


@each("reason", ["JobHeldUser", "Priority"])
def test_a_job_that_an_ended_run_left_in_the_queue_is_cancelled(reason: str) -> None:
    ended = fold(events(("completed", {"why": "done"})), RAN)
    left = run(ended, heartbeat=replace(HEARTBEAT, over=True))
    act = judge(left, word(waiting(reason)), NOW).act
    assert isinstance(act, Cancel)
    assert (act.job, act.successor) == ("13", None)
    assert judge(left._replace(mine=False), word(waiting(reason)), NOW).act is None
    assert judge(run(ended), word(running(), waiting(reason)), NOW).act is None, "its leader sees to it"


@given(RUNS, WORDS)
def test_an_act_survives_json(watched: Watched, slurm: SlurmAnswer) -> None:
    act = judge(watched, slurm, NOW).act
    if act is not None:
        fields = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(act).items()}
        assert act_of(type(act).__name__, fields) == act


# --- what is read ---------------------------------------------------------------------------------------------------


def test_notes_count_rescues_since_the_training_last_moved() -> None:
    notes = read_notes([*rescue(2), *events(("progress", {"attempt": 1, "step": 5}), gen=3), *rescue(4), *rescue(5),
                        *rescue(6, ok=None), *events(("intent", {"act": NOTE, "job": "13"}))])
    assert notes == Notes(cancelled=("13",), requeued=2, last_seq=0)


def test_notes_know_what_a_leader_asked_for_until_a_job_starts() -> None:
    needs: tuple[str, dict[str, Any]] = ("need_successor", {"exclude": ["n1"], "why": "time limit"})
    asking = (SUBMITTED, STARTED, needs)
    assert read_notes(events(*asking)) == Notes(is_needed=True, needs_excluded=("n1",))
    assert read_notes(events(*asking, STARTED)) == Notes()


def test_notes_count_refusals_since_the_last_job() -> None:
    def refusal(t: float, why: str) -> Event:
        return Event(t, 0, int(t), "login", "outcome", {"act": "queue_successor", "ok": False, "why": why})

    queueing = Event(5.0, 0, 1, "login", "decision", {"row": "queue_next", "action": "queue"})
    no = [queueing, refusal(6.0, "no"), refusal(70.0, "limit")]
    started = Event(30.0, 2, 1, "n0", "job_started", {"job": "13"})
    assert read_notes([*no, started]).refused == ("limit",)
    assert read_notes(no).refused == ("no", "limit")


def rescue(gen: int, ok: bool | None = True) -> list[Event]:
    return events(("decision", {"row": "gone", "action": "queue"}),
                  ("outcome", {"claim": gen, "act": "queue_successor", "ok": ok}), gen=gen)


def test_a_job_queued_beside_a_leader_or_by_one_is_no_rescue() -> None:
    by_leader = events(("outcome", {"claim": 3, "act": "queue_successor", "ok": True}), gen=1)
    assert read_notes([*rescue(0), *by_leader]) == Notes(last_seq=2)


@each("raw", [
    None, [], {}, {"v": 2, "count": 1, "gen": 1, "host": "n0", "job": "12"}, {"v": 1, "count": "x"},
    {"v": 1, "count": float("inf"), "gen": 1, "host": "n0", "job": "12"},
], ids=["null", "list", "empty", "a later version", "no number", "infinite"])
def test_a_pulse_of_another_form_is_none(raw: object) -> None:
    assert parse_heartbeat(raw) is None


def test_the_pulse_says_since_when_where_and_which_step() -> None:
    job = running(elapsed_s=113_253.0, nodelist="n[01-34]")
    text = "is running for 1-07:27:33 since 2026-11-21T20:51:56 on n[01-34] (step 1234)"
    assert judge(run(heartbeat=replace(HEARTBEAT, step=1234)), word(job, BEHIND), NOW) == Judgement("running", text)
    assert judge(run(), word(waiting("Resources")), NOW).text == "is waiting to be scheduled (Resources)"


# --- fewer nodes (min_nodes) ----------------------------------------------------------------------------------------

SMALL = PLAN._replace(nodes=4, min_nodes=2, restart=PLAN.restart._replace(wait_for_nodes_s=600.0))
DOWN = (("idle", "n[0-2]"), ("down*", "n3"))
BEGUN = state(SUBMITTED)   # and nothing has run yet


def hooked(*how: str, best: int = 20) -> State:
    """before_resize has ended so, for the checkpoint of step 20; the newest one is of step `best`."""
    hook = {"job": "12", "nodes": ["n0"], "resume_step": 20, "resume_path": "c/20",
            "resize": {"from": 4, "to": 2, "output": "c.resized/1"}}
    said: list[tuple[str, dict[str, Any]]] = [SUBMITTED, STARTED, ATTEMPT, ("checkpoint", {"attempt": 1, "step": best})]
    for number, end in enumerate(how, 2):
        said += [("attempt_started", {"attempt": number, **hook}), ("attempt_ended", {"attempt": number, "how": end})]
    return state(*said, NEXT)


def smaller(watched: Watched, reason: str, nodes: Any = DOWN, short_s: float = LONG_S, **more: Any) -> Judgement:
    return judge(watched, word(waiting(reason, **more), nodes=nodes, short_s=short_s), NOW)


@each("reason", [
    "Resources", "ReqNodeNotAvail, UnavailableNodes:n3", "BadConstraints", "NodeDown",
    "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions",
])
def test_a_job_that_lacks_nodes_for_longer_than_its_run_waits_may_start_with_fewer(reason: str) -> None:
    judged = smaller(run(plan=SMALL), reason)
    assert isinstance(judged.act, MakeSmaller), judged
    assert (judged.act.job, judged.act.nodes) == ("13", 3)
    assert act_of("MakeSmaller", asdict(judged.act)) == judged.act


@each("reason", [
    "Priority", "Dependency", "BeginTime", "JobHeldUser", "QOSMaxJobsPerUserLimit", "AssocGrpNodeLimit", "Licenses",
    "Reservation", "PartitionNodeLimit", "PartitionTimeLimit", "PartitionDown", "", "None", "SomethingNew",
])
def test_a_job_that_waits_for_anything_but_nodes_keeps_its_size(reason: str) -> None:
    assert not isinstance(smaller(run(plan=SMALL), reason).act, MakeSmaller)


@each(("watched", "nodes", "more"), [
    (run(), DOWN, {}),
    (run(plan=SMALL), DOWN, {"short_s": 599.0}),
    (run(plan=SMALL, notes=Notes(smaller=(("13", 3),))), DOWN, {}),
    (run(plan=SMALL), UP, {}),
    (run(plan=SMALL._replace(nodes=3, spare_nodes=1)), UP, {}),
    (run(plan=SMALL), (("idle", "n0"), ("down", "n[1-3]")), {}),
    (run(plan=SMALL), DOWN, {"excluded": "n[0-1]"}),
    (run(BEGUN, plan=SMALL), UP, {}),
    (run(hooked("unconverted"), plan=SMALL), DOWN, {}),
    (run(hooked("lost", "lost", "lost"), plan=SMALL), DOWN, {}),
    (run(replace(RAN, via="requeue"), plan=SMALL), DOWN, {}),
    (run(plan=SMALL, requests=(KILL,)), DOWN, {}),
    (run(plan=SMALL, mine=False), DOWN, {}),
], ids=["without min_nodes", "not yet", "it is already", "all are idle", "all are idle, its spare too",
        "too few for that", "... without those kept out",
        "busy nodes, before the run has begun", "its checkpoint cannot be converted", "... or was not, three times",
        "it is to be requeued", "a person has stopped it", "another user's"])
def test_a_job_keeps_its_size(watched: Watched, nodes: Any, more: dict[str, Any]) -> None:
    assert not isinstance(smaller(watched, "Resources", nodes, **more).act, MakeSmaller)


@each("watched", [
    run(BEGUN, plan=SMALL), run(hooked("converted"), plan=SMALL), run(hooked("lost"), plan=SMALL),
    run(hooked("unconverted", best=30), plan=SMALL),
], ids=["no healthy full set, before the run has begun", "converted", "a conversion that was lost",
        "a newer checkpoint since"])
def test_a_job_is_made_smaller(watched: Watched) -> None:
    assert isinstance(smaller(watched, "Resources").act, MakeSmaller)


@each(("plan", "nodes", "more", "size"), [
    (SMALL, (("allocated", "n[0-1]"), ("idle", "n[2-3]")), {}, 2),
    (SMALL, (("allocated", "n0"), ("planned", "n[1-3]")), {}, 3),
    (SMALL, (("allocated", "n[0-3]"),), {}, 2),
    (SMALL, (("allocated", "n[0-2]"), ("idle*", "n3")), {}, 2),
    (SMALL._replace(nodes_multiple_of=2), DOWN, {}, 2),
    (SMALL, UP, {"excluded": "n3"}, 3),
    (SMALL._replace(nodes=3, spare_nodes=1), DOWN, {}, 3),
], ids=["those that are idle", "... or kept for a job", "the fewest, where all are busy", "silent ones are not idle",
        "a multiple", "without those kept out", "all but its spare"])
def test_a_job_of_a_run_that_has_begun_asks_for_the_nodes_that_are_idle(
    plan: Any, nodes: Any, more: dict[str, Any], size: int
) -> None:
    judged = smaller(run(plan=plan), "Resources", nodes, **more)
    assert isinstance(judged.act, MakeSmaller) and judged.act.nodes == size, judged


def test_a_smaller_job_that_waits_as_long_again_asks_for_fewer() -> None:
    known = run(plan=SMALL, notes=Notes(smaller=(("13", 3),)))
    act = smaller(known, "Resources", (("allocated", "n[0-1]"), ("idle", "n[2-3]"))).act
    assert isinstance(act, MakeSmaller) and act.nodes == 2


def test_states_of_nodes_are_asked_for_before_a_job_is_made_smaller() -> None:
    assert smaller(run(plan=SMALL), "Resources", None).asks == frozenset({"nodes"})


def test_exclusions_give_way_only_where_fewer_nodes_would_not_do() -> None:
    known = excluding("n0", "n1", "n2", "n3")
    few = run(known, plan=SMALL)
    assert isinstance(smaller(few, "BadConstraints", UP, excluded="n[2-3]").act, MakeSmaller)
    assert isinstance(smaller(few, "BadConstraints", UP, excluded="n[1-3]").act, Relax)


def test_a_job_that_was_made_smaller_is_known_from_the_journal() -> None:
    said = [("outcome", {"claim": 4, "act": "make_smaller", "ok": True, "job": "13", "nodes": 3}),
            ("outcome", {"claim": 5, "act": "make_smaller", "ok": False, "why": "no"}),
            ("outcome", {"claim": 6, "act": "make_smaller", "ok": True})]   # of another version
    assert read_notes(events(*said)).smaller == (("13", 3),)
