"""How many nodes the next attempt has, when a job waits for a full set, and which checkpoint is converted first."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.base.endings import AttemptEnd
from safelaunch.base.model import Event
from safelaunch.checkpoints.model import Checkpoint
from safelaunch.decide.ends.ended import of_hook
from safelaunch.decide.facts.actions import FAILED_GRACE_S, AskNodes, AskToEnd, HandOver, Kill, Launch, Wait
from safelaunch.decide.facts.seen import Live, MissingNodes, Observation
from safelaunch.decide.nodes import resize
from safelaunch.decide.turn import rows
from safelaunch.launch.settings import RestartPlan
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import Resize, State
from tests.pure.decide.situations import CHECKPOINT, KILL, NOW, PLAN, Said, action, row
from tests.tables import each

NODES = ("n0", "n1", "n2", "n3")
WAIT_S = 600.0
SMALL = PLAN._replace(nodes=4, min_nodes=2, before_resize="convert", restart=RestartPlan(30, 9, 0.0))
FREELY = SMALL._replace(before_resize="")
LOST = (("n2", "dead"), ("n3", "dead"))
AT_20 = Checkpoint("ckpt/step_20", 20, "torch")
AT_30 = Checkpoint("ckpt/step_30", 30, "torch")


def run(*attempts: dict[str, Any], ended_t: float = NOW - 5) -> State:
    """A job of four nodes and its attempts: `n` nodes, from step `at`, `saw` the steps of checkpoints, `to` is what a
    hook converts for. The last one has ended at `ended_t`.
    """
    said: Said = [("submitted", {"job": "11"}), ("job_started", {"job": "11", "nodes": NODES})]
    for number, one in enumerate(attempts, start=1):
        at = one.get("at")
        path = one.get("path", f"ckpt/step_{at}" if at else None)
        facts = {"attempt": number, "job": one.get("job", "11"), "nodes": NODES[:one["n"]], "resume_step": at,
                 "resume_path": path, "whole_steps": one.get("saw", [])}
        if "to" in one:
            facts["resize"] = {"from": one["of"], "to": one["to"], "output": f"ckpt.resized/{number}"}
        said.append(("attempt_started", facts))
        if one.get("how"):
            said.append(("attempt_ended", {"attempt": number, "how": one["how"]}))
    times = [NOW - 1000 + seq for seq in range(len(said) - 1)] + [ended_t]
    lines = zip(times, said, strict=True)
    return fold(Event(t, 1, seq, "n0", event, data) for seq, (t, (event, data)) in enumerate(lines))


def seen(lost: tuple[tuple[str, str], ...] = LOST, **more: Any) -> Observation:
    return Observation(now=NOW, nodes=NODES, lost=lost, **more)


def free(in_s: float | None, asked_s: float = 1.0) -> MissingNodes:
    return MissingNodes(NOW - asked_s, None if in_s is None else NOW + in_s)


FULL = {"n": 4, "how": "lost"}                         # wrote step_20
CONVERTED = {"n": 2, "at": 20, "path": "ckpt.resized/2", "saw": [20], "how": "failed"}
HOOK = {"n": 1, "at": 20, "saw": [20], "of": 4, "to": 2}


@each(("count", "plan", "expected"), [
    (5, SMALL, 4), (4, SMALL, 4), (3, SMALL, 3), (2, SMALL, 2), (1, SMALL, 0), (0, SMALL, 0),
    (3, SMALL._replace(nodes_multiple_of=2), 2), (1, SMALL._replace(nodes_multiple_of=2), 0),
    (47, SMALL._replace(nodes=48, min_nodes=24, nodes_multiple_of=12), 36),
    (3, SMALL._replace(min_nodes=None), 0), (4, SMALL._replace(min_nodes=None), 4),
])
def test_an_attempt_has_the_most_nodes_that_the_run_allows(count: int, plan: Any, expected: int) -> None:
    assert resize.most_nodes(plan, count) == expected


def forgetful(state: State, step: int) -> State:
    """Its last attempt did not load the checkpoint, and came to `step` from the start."""
    last = replace(state.attempts[-1], lost="it counts 1 … 3", first_step=1, step=step)
    return replace(state, attempts=(*state.attempts[:-1], last))


@each(("state", "point", "expected"), [
    (run(FULL), AT_20, 4),
    (forgetful(run(FULL, {"n": 2, "at": 20, "saw": [20], "how": "failed"}), 20), AT_20, 2),
    (forgetful(run(FULL, {"n": 2, "at": 20, "saw": [20], "how": "failed"}), 19), AT_20, 4),
    (run(FULL, {"n": 2, "at": 20, "saw": [20], "how": "failed"}), AT_20, 4),
    (run(FULL, {"n": 2, "at": 20, "saw": [20], "how": "failed"}), AT_30, 2),
    (run(FULL, {**HOOK, "how": "converted"}), AT_20, 4),
    (run(FULL, {"n": 2, "at": 20, "saw": [20]}, {"n": 3, "at": 30, "saw": [20, 30]}), AT_30, 2),
    (run({"n": 2, "at": 20, "saw": [20], "how": "failed"}), AT_20, 4),
    (run(), AT_20, 4),
    (run(FULL, {"n": 2, "at": 10, "saw": [10], "how": "failed"}), AT_20, 2),
    (run({"n": 3, "how": "failed"}), Checkpoint("ckpt/last.ckpt", None, "torch"), 3),
    (run(FULL, {"n": 2, "how": "interrupted"}), Checkpoint("ckpt/step_0", 0, "torch"), 2),
], ids=["of the first attempt", "a later attempt that has overwritten it", "a later attempt that has not come so far",
        "a later attempt that has written none", "a later attempt's own", "a hook writes none",
        "of the attempt before", "was there before the run", "... and no attempt has been", "written once more",
        "a name without a step", "of step 0"])
def test_a_checkpoint_is_of_the_attempt_that_wrote_it(state: State, point: Checkpoint, expected: int) -> None:
    assert resize.size_of(state, SMALL, point) == expected


@each(("missing", "ended_t", "expected"), [
    (None, NOW - 5, "ask_nodes"),
    (free(WAIT_S + 3600.0), NOW - 5, "launch"),
    (free(WAIT_S + 3500.0), NOW - 5, "wait_for_nodes"),
    (free(math.inf), NOW - 5, "launch"),
    (free(0.0), NOW - 5, "too_few_nodes"),
    (free(-9000.0), NOW - 5, "too_few_nodes"),
    (free(300.0), NOW - 5, "wait_for_nodes"),
    (free(None), NOW - 5, "wait_for_nodes"),
    (free(None), NOW - WAIT_S, "launch"),
    (free(300.0, asked_s=61.0), NOW - 100, "ask_nodes"),
    (free(0.0, asked_s=20.0), NOW - 5, "ask_nodes"),
    (free(None), NOW + 9000.0, "launch"),
    (free(None, asked_s=-9000.0), NOW - 5, "ask_nodes"),
], ids=["nobody has asked yet", "free long after the wait", "free after it, by an estimate", "never",
        "free now", "by a clock of another zone",
        "free within the wait", "Slurm gives no answer", "... until the wait is over", "the answer is old",
        "... or of the attempt before",
        "a clock that was set back", "... since Slurm was asked"])
def test_a_job_waits_for_a_full_set_only_as_long_as_one_can_come(
    missing: MissingNodes | None, ended_t: float, expected: str
) -> None:
    assert row(run(FULL, ended_t=ended_t), seen(missing=missing), FREELY) == expected


def test_what_is_asked_for_are_the_nodes_that_the_next_job_lacks_its_spares_too() -> None:
    asked = action(run(FULL), seen(), FREELY._replace(spare_nodes=1))
    assert isinstance(asked, AskNodes)
    assert (asked.count, asked.but) == (3, NODES)


def test_a_wait_ends_with_the_time_for_it_and_asks_again_before() -> None:
    until = {ago: action(run(FULL, ended_t=NOW - ago), seen(missing=free(None)), FREELY) for ago in (5, 590)}
    assert [one.until for one in until.values() if isinstance(one, Wait)] == [NOW + 59, NOW + 10]


def test_a_run_without_min_nodes_waits_in_the_queue_as_ever() -> None:
    handed = action(run(FULL), seen(), SMALL._replace(min_nodes=None))
    assert handed == HandOver(("n2", "n3"), "of the 4 nodes needed only 2 can be used (without n2, n3)")


@each(("state", "missing", "expected"), [
    (run(FULL, {"n": 2, "how": "failed"}), None, "ask_nodes"),
    (run(FULL, {"n": 2, "how": "failed"}), free(300.0), "launch"),
    (run(FULL, {"n": 2, "how": "failed"}), free(None), "launch"),
    (run(FULL, {"n": 2, "how": "failed"}), free(0.0), "too_few_nodes"),
    (run(FULL, {**HOOK, "how": "converted"}), None, "launch"),
    (run(FULL, {**HOOK, "how": "lost"}), free(None), "launch"),
], ids=["each restart asks", "... and goes on with fewer", "... without a wait", "... or grows back",
        "after a conversion nothing is asked", "nor is waited after one that was lost"])
def test_a_small_run_grows_back_at_a_restart_or_goes_on_at_once(
    state: State, missing: MissingNodes | None, expected: str
) -> None:
    assert row(state, seen(missing=missing, resume=AT_20), SMALL) == expected


def test_three_jobs_in_a_row_without_an_attempt_go_on_with_what_they_have() -> None:
    said: Said = [("submitted", {"job": "11"})]
    said += [("job_started", {"job": str(job), "nodes": NODES}) for job in (11, 12, 13)]
    state = fold(Event(NOW - 10 + seq, 1, seq, "n0", event, data) for seq, (event, data) in enumerate(said))
    assert row(state, seen(missing=free(0.0)), FREELY) == "launch"


def test_a_job_that_got_fewer_nodes_from_the_queue_begins_with_them_at_once_and_asks_at_its_next_restart() -> None:
    def small(*attempts: dict[str, Any]) -> State:
        said: Said = [("submitted", {"job": "11"}), ("job_started", {"job": "11", "nodes": NODES}),
                      ("attempt_started", {"attempt": 1, "job": "11", "nodes": NODES}),
                      ("attempt_ended", {"attempt": 1, "how": "interrupted"}), ("submitted", {"job": "12"}),
                      ("job_started", {"job": "12", "nodes": NODES[:3]})]
        for number, one in enumerate(attempts, 2):
            said += [("attempt_started", {"attempt": number, "job": "12", "nodes": NODES[:3], **one}),
                     ("attempt_ended", {"attempt": number, "how": "failed"})]
        return fold(Event(NOW - 100 + seq, 1, seq, "n0", event, data) for seq, (event, data) in enumerate(said))

    three = replace(seen(lost=()), nodes=NODES[:3])
    launch = action(small(), three, FREELY)
    assert isinstance(launch, Launch) and launch.nodes == NODES[:3]
    assert row(small({}), three, FREELY) == "ask_nodes"


NEVER = free(math.inf)


@each(("state", "more", "expected"), [
    (run(FULL), {}, (("n0",), Resize(4, 2))),
    (run(FULL, {**HOOK, "how": "interrupted"}), {}, (("n0",), Resize(4, 2))),
    (run(FULL, {**HOOK, "how": "converted"}), {}, (("n0", "n1"), None)),
    (run(FULL, {**HOOK, "how": "converted"}, CONVERTED), {}, (("n0", "n1"), None)),
    (run(FULL, {**HOOK, "how": "converted"}, CONVERTED),
     {"lost": (), "missing": None}, (NODES, None)),
    (run(FULL, {"n": 2, "at": 20, "saw": [20], "how": "failed"}), {"lost": (), "missing": None, "resume": AT_30},
     (("n0",), Resize(2, 4))),
    (run(FULL, {"n": 2, "at": 20, "saw": [20], "how": "failed"},
         {"n": 1, "at": 30, "saw": [30], "of": 2, "to": 4, "how": "unconverted"}),
     {"lost": (), "missing": None, "resume": AT_30}, (("n0", "n1"), None)),
    (run(FULL, {**HOOK, "how": "unconverted"}), {"resume": None}, (("n0", "n1"), None)),
], ids=["a checkpoint of four nodes for two", "once more after an interruption", "it is converted",
        "what is converted is used again", "... not by all nodes", "back to four", "not back to four, by a failed hook",
        "without a checkpoint there is nothing to convert"])
def test_a_checkpoint_is_converted_before_another_number_of_nodes_uses_it(
    state: State, more: dict[str, Any], expected: tuple[tuple[str, ...], Resize | None]
) -> None:
    launched = action(state, seen(**{"missing": NEVER, "resume": AT_20, **more}), SMALL)
    assert isinstance(launched, Launch)
    assert (launched.nodes, launched.resize) == expected


def test_attempts_of_each_size_start_from_what_is_for_them() -> None:
    state = run(FULL, {**HOOK, "how": "converted"})
    assert {size: resize.output_of(state, SMALL, AT_20, size) for size in (2, 3, 4)} == {
        2: "ckpt.resized/2", 3: None, 4: None}


UNLOADED = Event(NOW, 1, 99, "n0", "checkpoint_rejected", {"path": "ckpt.resized/2", "step": 20})


@each("hooks", [
    [{**HOOK, "how": "unconverted"}], [{**HOOK, "how": "interrupted"}] * 3, [{**HOOK, "how": "lost"}] * 3,
], ids=["one failure", "three interruptions", "three dead nodes"])
def test_after_a_failed_hook_the_run_waits_for_the_full_set(hooks: list[dict[str, Any]]) -> None:
    assert row(run(FULL, *hooks), seen(missing=NEVER, resume=AT_20), SMALL) == "too_few_nodes"
    assert row(run(FULL, *hooks, {"n": 4, "at": 20, "saw": [20], "how": "lost"}),
               seen(missing=NEVER, resume=AT_30), SMALL) == "launch", "a newer checkpoint is another matter"


def test_what_was_converted_and_does_not_load_is_no_more_used_than_the_hook() -> None:
    state = run(FULL, {**HOOK, "how": "converted"}, {"n": 2, "at": 20, "path": "ckpt.resized/2", "how": "failed"})
    rejected = fold([UNLOADED], state)
    assert row(rejected, seen(missing=NEVER, resume=AT_20), SMALL) == "too_few_nodes"
    assert (rejected.rejected_in_a_row, rejected.failures_without_progress) == (0, 0), "it is no older checkpoint"


def test_a_checkpoint_whose_name_tells_no_step_is_not_converted() -> None:
    last = Checkpoint("ckpt/last.ckpt", None, "lightning")
    assert row(run(FULL), seen(missing=NEVER, resume=last), SMALL) == "too_few_nodes"
    assert row(run(FULL), seen(missing=NEVER, resume=last), FREELY) == "launch"


def test_on_a_frozen_folder_nothing_is_chosen() -> None:
    assert row(run(FULL), seen(missing=NEVER, frozen=True), SMALL) == "frozen"


def test_checks_end_no_run_that_can_go_on_with_fewer_nodes() -> None:
    state = fold([Event(NOW, 1, 99, "n0", "checks_failed", {"nodes": ["n2"], "why": "shm", "unused": True})], run(FULL))
    what = Observation(now=NOW, nodes=NODES, partition=NODES, missing=NEVER)
    assert (row(state, what, FREELY), row(state, what, FREELY._replace(min_nodes=None))) == ("launch", "no_full_set")


@given(st.lists(st.sampled_from(NODES), unique=True), st.integers(1, 3), st.integers(1, 3), st.booleans(),
       st.sampled_from([None, NEVER, free(0.0), free(None)]), st.sampled_from(["converted", "unconverted", "lost"]))
def test_no_attempt_has_fewer_than_the_least_or_an_odd_number(
    lost: list[str], least: int, step: int, has_hook: bool, missing: MissingNodes | None, how: str
) -> None:
    plan = SMALL._replace(min_nodes=least, nodes_multiple_of=step, before_resize="convert" if has_hook else "")
    what = seen(tuple((node, "dead") for node in lost), missing=missing, resume=AT_20)
    launched = rows.decide(run(FULL, {**HOOK, "how": how}), what, plan).action
    if isinstance(launched, Launch) and launched.resize is None:
        assert len(launched.nodes) == 4 or (len(launched.nodes) >= least and len(launched.nodes) % step == 0)
        assert not set(launched.nodes) & set(lost)


# --- while the hook runs --------------------------------------------------------------------------------------------

HOOKED = Live(2, ("n0",), tasks=1, is_hook=True)
RUNNING_HOOK = run(FULL, HOOK)


@each(("more", "expected"), [
    ({"ran_s": 3600.0}, None),
    ({"ran_s": 3601.0}, ("hook_late", Kill(
        FAILED_GRACE_S, "before_resize has taken more than 3600 s (hang.first_step)"))),
    ({"requests": (KILL,)}, ("kill", Kill(FAILED_GRACE_S, "bob touched the kill switch"))),
    ({"requests": (CHECKPOINT,)}, ("checkpoint", Kill(FAILED_GRACE_S, "bob wants it to stop at its next checkpoint"))),
    ({"limit_near": True}, ("limit_near", Kill(FAILED_GRACE_S, "the job's time limit is near"))),
])
def test_a_hook_has_its_time_and_nothing_to_save(more: dict[str, Any], expected: tuple[str, Kill] | None) -> None:
    decided = rows.decide(RUNNING_HOOK, seen((), live=HOOKED, **more), SMALL)
    assert (decided.row, decided.action) == (expected or ("watch", None))
    training = rows.decide(RUNNING_HOOK, seen((), live=replace(HOOKED, is_hook=False), **more), SMALL).action
    assert training is None or isinstance(training, AskToEnd)


def test_the_end_of_a_hook_is_none_of_the_runs_and_costs_no_budget() -> None:
    assert {of_hook(how) for how in AttemptEnd} == {
        "converted", "unconverted", "lost", "interrupted", "stopped"}
    state = run(FULL, {**HOOK, "how": of_hook(AttemptEnd.FAILED)})
    assert (state.restarts, state.failed_categories) == (run(FULL).restarts, run(FULL).failed_categories)


# --- outputs --------------------------------------------------------------------------------------------------------

WHOLE = {**HOOK, "how": "converted"}
AGAIN = {"n": 1, "at": 30, "saw": [30], "of": 2, "to": 4, "how": "converted"}
ON_FOUR = {"n": 4, "at": 30, "path": "ckpt.resized/4", "saw": [30]}


@each(("attempts", "point", "spent"), [
    ((FULL, WHOLE), AT_20, []),
    ((FULL, {**HOOK, "how": "unconverted"}), AT_20, [2]),
    ((FULL, {**HOOK, "how": "interrupted"}, HOOK), AT_20, [2]),
    ((FULL, WHOLE, CONVERTED), AT_30, []),
    ((FULL, WHOLE, CONVERTED, AGAIN), AT_30, [2]),
    ((FULL, WHOLE, CONVERTED, AGAIN, ON_FOUR), AT_30, [2]),
    ((FULL, WHOLE, CONVERTED, AGAIN, CONVERTED), AT_30, []),
    ((FULL, WHOLE, CONVERTED, AGAIN), AT_20, []),
    ((FULL, WHOLE, CONVERTED, AGAIN), None, [2]),
], ids=["of the newest checkpoint", "half-written", "interrupted, and begun anew", "the newest whole one",
        "of a checkpoint that is past", "... while another one is loaded", "... while it is loaded itself",
        "the newest checkpoint was rejected", "no checkpoint is left"])
def test_outputs_are_removed_once_nothing_goes_on_from_them(
    attempts: tuple[dict[str, Any], ...], point: Checkpoint | None, spent: list[int]
) -> None:
    assert [known.number for known in resize.spent_outputs(run(*attempts), point)] == spent


def removed(*attempts: dict[str, Any], gone: str) -> State:
    known = run(*attempts)
    return replace(known, attempts=tuple(
        replace(one, resize=one.resize._replace(is_removed=True)) if one.resize and one.resize.output == gone else one
        for one in known.attempts))


def test_a_checkpoint_whose_output_was_removed_is_converted_again() -> None:
    state = removed(FULL, WHOLE, gone="ckpt.resized/2")
    assert resize.output_of(state, SMALL, AT_20, 2) is None
    assert resize.why_convert(state, SMALL, AT_20, 2) == Resize(4, 2)
    assert not resize.is_barred(state, SMALL, AT_20, 2)
    assert resize.is_barred(removed(FULL, {**HOOK, "how": "unconverted"}, gone="ckpt.resized/2"), SMALL, AT_20, 2)
    assert resize.is_barred(fold([UNLOADED], state), SMALL, AT_20, 2), "it did not load"
