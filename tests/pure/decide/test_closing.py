"""The end of an attempt as data: which acts, in which order, and why each stands where it stands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from safelaunch.base.endings import AttemptEnd
from safelaunch.base.model import Event, Exit, NewEvent
from safelaunch.checkpoints.model import Checkpoint
from safelaunch.decide.ends.closing import (
    LOST_PATIENCE_S,
    SRUN_PATIENCE_S,
    ClosingAct,
    CopyRest,
    Do,
    EndedAttempt,
    Inspect,
    NoteUse,
    PutFile,
    Rejected,
    SayLine,
    close,
    needs_verdict,
    progress,
    rejected,
)
from safelaunch.decide.facts.seen import Live
from safelaunch.decide.nodes.excluding import KnownNodes
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import State
from safelaunch.why.verdict import Verdict
from tests.pure.decide.situations import NOW, PLAN, history
from tests.tables import each

LIVE = Live(1, ("n0", "n1", "n2"), tasks=3, exits=(Exit("n1", 1, 1),))
SICK = Verdict("gpu_hardware", "Xid 79 on n1", 0.95, "exclude_node", host="n1", spoken_by=("n1",))
FAILED = EndedAttempt(LIVE, AttemptEnd.FAILED, history("failed", last_ended=False), PLAN, KnownNodes(
    ("n0", "n1", "n2", "n3")), NOW, code=1, verdict=SICK, owner=("bob", "c"))
WELL = FAILED._replace(how=AttemptEnd.COMPLETED, code=0, verdict=None, live=replace(LIVE, exits=()))
SILENT = Verdict("node_failure", "n1 is silent", 0.9, "wait")
LOST = FAILED._replace(how=AttemptEnd.LOST, lost=(("n1", "silent"),), verdict=SILENT)
ELSEWHERE = FAILED._replace(has_process=False)
HOOK = FAILED._replace(live=replace(LIVE, is_hook=True))


def kind(act: ClosingAct) -> str:
    return act.event if isinstance(act, NewEvent) else act.name if isinstance(act, Do) else type(act).__name__


def kinds(one: EndedAttempt) -> list[str]:
    return list(dict.fromkeys(map(kind, close(one))))


COMMON = ["FORGET_ATTEMPT", "RECORD", "PutFile", "KEEP_TAIL", "SayLine", "FIND_RESUME", "FALL_BACK", "KEEP_ARGS",
          "NOTE_PROGRESS"]


@each(("one", "acts"), [
    (FAILED, ["failure", "verdict", "Accuse", "node_suspected", "node_excluded", "attempt_ended", "fenced", "CopyRest",
              "FORGET_PROCESS", "NoteUse", "Inspect", *COMMON]),
    (WELL, ["attempt_ended", "fenced", "CopyRest", "FORGET_PROCESS", "NoteUse", *COMMON]),
    (LOST, ["failure", "verdict", "Accuse", "node_suspected", "node_excluded", "attempt_ended", "fenced", "CopyRest",
            "FORGET_PROCESS", "NoteUse", *COMMON]),
    (ELSEWHERE, ["failure", "verdict", "Accuse", "node_suspected", "node_excluded", "attempt_ended", "fenced",
                 "NoteUse", "Inspect", *COMMON]),
    (HOOK, ["failure", "verdict", "attempt_ended", "fenced", "CopyRest", "FORGET_PROCESS", "NoteUse", "Inspect",
            *COMMON]),
], ids=["failed", "completed", "a node lost", "its supervisor's host is gone", "before_resize failed"])
def test_what_is_done_about_an_end(one: EndedAttempt, acts: list[str]) -> None:
    assert kinds(one) == acts


# Each act with the one that it must come before. An act that no row names could stand anywhere.
ORDER = [
    ("failure", "verdict", "readers of the journal take the verdict as that of the last failure"),
    ("verdict", "attempt_ended", "the write may be cut: an attempt without end is closed again by the next supervisor, "
                                 "one with an end and no verdict is never explained"),
    ("verdict", "Accuse", "its time is that of the judgement; the shared ledger may answer late"),
    ("Accuse", "node_suspected", "what the ledger is told and what the journal says have one order everywhere"),
    ("node_suspected", "node_excluded", "an exclusion follows from evidence that the journal has"),
    ("node_excluded", "attempt_ended", "the next launch, which an end allows, must not use the node"),
    ("attempt_ended", "fenced", "that nothing of it is left is said of an attempt that is over"),
    ("fenced", "RECORD", "one fsync for all: no reader finds half of an end"),
    ("CopyRest", "FORGET_PROCESS", "the copy is under way before the batch shell stops looking for the attempt"),
    ("FORGET_PROCESS", "FORGET_ATTEMPT", "afterwards nobody knows the process"),
    ("NoteUse", "FORGET_ATTEMPT", "the nodes and the start are those of the attempt that is live"),
    ("Inspect", "FORGET_ATTEMPT", "the same"),
    ("FORGET_ATTEMPT", "RECORD", "guards are heard while the journal is written: their words are no news of a live "
                                 "attempt any more"),
    ("RECORD", "PutFile", "who finds exit.json finds the verdict in the journal"),
    ("RECORD", "SayLine", "people are told what the journal has"),
    ("KEEP_TAIL", "SayLine", "the log's last lines stand above the sentence on its end"),
    ("RECORD", "FIND_RESUME", "a NaN or a person's step in the journal bounds the search, which runs while "
                              "the lines are on their way"),
    ("SayLine", "FIND_RESUME", "a search that is slow keeps nobody from reading how it ended"),
    ("FIND_RESUME", "FALL_BACK", "only the newest checkpoint can be rejected"),
    ("RECORD", "FALL_BACK", "the verdict of this attempt rejects it"),
    ("FALL_BACK", "KEEP_ARGS", "a job without a supervisor must not load a checkpoint that was rejected"),
    ("FALL_BACK", "NOTE_PROGRESS", "a checkpoint that does not load is no progress, and refills no budget"),
    ("RECORD", "NOTE_PROGRESS", "how far the attempt came is told by its end"),
]


def test_each_act_stands_where_it_has_a_reason_to_stand() -> None:
    orders = [list(map(kind, close(one))) for one in (FAILED, WELL, LOST, ELSEWHERE, HOOK)]
    wrong = [(first, then, why) for first, then, why in ORDER for order in orders
             if first in order and then in order and max(
                 at for at, name in enumerate(order) if name == first) > order.index(then)]
    assert not wrong
    assert set(orders[0]) == {name for first, then, _ in ORDER for name in (first, then)}


def of_kind(one: EndedAttempt, name: str) -> Any:
    return next(act for act in close(one) if kind(act) == name)


@each(("one", "name", "expected"), [
    (FAILED, "CopyRest", CopyRest(SRUN_PATIENCE_S)),
    (LOST, "CopyRest", CopyRest(LOST_PATIENCE_S)),
    (FAILED, "NoteUse", NoteUse(NOW - 58)),
    (FAILED, "Inspect", Inspect(NOW - 58)),
    (FAILED, "SayLine", SayLine("attempt 1 failed: Xid 79 on n1")),
    (HOOK, "SayLine", SayLine("attempt 1 unconverted: before_resize: Xid 79 on n1")),
    (WELL, "PutFile", PutFile("exit.json", {"v": 1, "attempt": 1, "how": "completed", "exit_code": 0, "srun_code": None,
                                            "tasks": []})),
])
def test_what_an_act_says(one: EndedAttempt, name: str, expected: ClosingAct) -> None:
    assert of_kind(one, name) == expected


def test_the_verdict_says_what_the_policy_makes_of_it_and_whom_it_accuses() -> None:
    data = of_kind(FAILED, "verdict").data
    assert (data["node"], data["task"], data["suspects"], data["first_only"]) == ("n1", 1, ["n1"], False)
    assert data["follows"].startswith("restarts by itself") and data["fingerprint"]
    (found,) = of_kind(FAILED, "Accuse").evidence
    assert (found.node, found.run, found.attempt, found.owner, found.cluster) == ("n1", "r1", 1, "bob", "c")


@each(("how", "link", "expected"), [
    ("failed", None, True), ("completed", None, False), ("stopped", None, True), ("stopped", {"kind": "cancel"}, False),
    ("lost", {"kind": "sbatch"}, True),
])
def test_which_ends_are_explained(how: str, link: dict[str, str] | None, expected: bool) -> None:
    assert needs_verdict(AttemptEnd(how), link) is expected


def resumed(*ends: str, category: str = "checkpoint", tried: int = 0) -> State:
    """Attempts that started from step 100 of ckpt/100, after `tried` checkpoints that were rejected."""
    events: list[tuple[str, dict[str, Any]]] = [("submitted", {"job": "11"})]
    for number, how in enumerate(ends, start=1):
        events += [("attempt_started", {"attempt": number, "job": "11", "nodes": ["n0", "n1"], "resume_step": 100,
                                        "resume_path": "ckpt/100"}),
                   ("verdict", {"attempt": number, "category": category, "summary": "torn", "confidence": 0.95}),
                   ("attempt_ended", {"attempt": number, "how": how})]
    events += [("checkpoint_rejected", {"path": f"ckpt/{step}", "step": step, "attempt": 1, "why": "torn"})
               for step in range(101, 101 + tried)]
    return fold(Event(NOW + seq, 1, seq, "n0", event, data) for seq, (event, data) in enumerate(events))


HUNDRED = Checkpoint("ckpt/100", 100, "auto")


@each(("state", "newest", "expected"), [
    (resumed("failed"), HUNDRED, Rejected("ckpt/100", "attempt 1 died while loading it: torn", is_last=False)),
    (resumed("failed", tried=PLAN.resume.keep_trying), HUNDRED,
     Rejected("ckpt/100", "attempt 1 died while loading it: torn", is_last=True)),
    (resumed("failed"), Checkpoint("ckpt/120", 120, "auto"), None),
    (resumed("failed"), None, None),
    (resumed("failed", category="gpu_hardware"), HUNDRED, None),
    (resumed("interrupted"), HUNDRED, None),
    (State(), HUNDRED, None),
], ids=["it does not load", "many did not", "rewritten since", "none is there", "the node is to blame", "told to end",
        "no attempt"])
def test_which_checkpoint_is_left_out(state: State, newest: Checkpoint | None, expected: Rejected | None) -> None:
    assert rejected(state, PLAN, newest) == expected


@each(("state", "newest", "expected"), [
    (history("failed"), HUNDRED, ["checkpoint"]),
    (history("failed", checkpoint_after=(1,)), HUNDRED, []),
    (history("failed", checkpoint_after=(1,)), Checkpoint("ckpt/200", 200, "auto"), ["checkpoint"]),
    (history("failed"), None, []),
    (State(), None, []),
], ids=["a first one", "the same one", "a newer one", "none", "no attempt"])
def test_what_refills_the_budget(state: State, newest: Checkpoint | None, expected: list[str]) -> None:
    assert [new.event for new in progress(state, PLAN, newest, 0.0, 1)] == expected


def test_what_the_log_says_of_its_losses_and_of_loading_is_journalled() -> None:
    ends = (WELL._replace(nan_end="losses are nan"), FAILED._replace(of_loading=False))
    events = {act.event: act.data for one in ends
              for act in close(one) if isinstance(act, NewEvent) and act.event in ("verdict", "attempt_ended")
              and (act.event == "verdict" or one.verdict is None)}
    assert (events["attempt_ended"]["nan_end"], events["verdict"]["of_loading"]) == ("losses are nan", False)
    assert not any("nan_end" in act.data for act in close(WELL) if isinstance(act, NewEvent))
