"""Why a run is given up, and why not: proofs, the policy's stops, budgets, checkpoints that do not load."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from safelaunch.base.model import BUDGET_SPENT, FAILED_FOR_GOOD, Event
from safelaunch.decide.budget import policy
from safelaunch.decide.budget.budget import GiveUp, reason_to_give_up, rejects_checkpoint
from safelaunch.launch.settings import RestartPlan
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import Exclusion, State
from safelaunch.run.plan import Plan
from tests.pure.decide.situations import PLAN
from tests.tables import each

Facts = dict[str, Any]


def run(*attempts: Facts) -> State:
    """The state after attempts; each says how it ended and what was found, `checkpoint` that one advanced after it."""
    said: list[tuple[str, Facts]] = [("submitted", {"job": "11"}), ("job_started", {"job": "11", "nodes": ["n0"]})]
    for number, facts in enumerate(attempts, start=1):
        given = {"category": "unknown", "confidence": 0.9, "fingerprint": "boom", "suspects": ["n0"], **facts}
        said.append(("attempt_started", {"attempt": number, "job": "11", "nodes": ["n0", "n1"],
                                         "resume_path": given.get("path"), "resume_step": given.get("from")}))
        if given.get("step") is not None:
            said.append(("progress", {"attempt": number, "step": given["step"]}))
        said.append(("verdict", {"attempt": number, "summary": "boom", **{
            key: given[key] for key in ("category", "confidence", "fingerprint", "suspects")},
            "of_loading": given.get("of_loading")}))
        said.append(("attempt_ended", {"attempt": number, "how": given.get("how", "failed"),
                                       "exit_code": given.get("code", 1), "asked": given.get("asked"),
                                       "reach": given.get("reach"), "nan_end": given.get("nan_end")}))
        if "checkpoint" in given:
            said.append(("checkpoint", {"attempt": number, "step": given["checkpoint"], "path": "/c"}))
    return fold(Event(1000.0 + seq, 1, seq, "n0", event, data) for seq, (event, data) in enumerate(said))


def reason(state: State, **own: str) -> GiveUp | None:
    return reason_to_give_up(state, with_policy(**own))


def with_policy(**own: str) -> Plan:
    return PLAN._replace(restart=PLAN.restart._replace(policy=tuple(own.items())))


_STUCK: Facts = {"category": "config", "suspects": [], "asked": "step_stuck", "fingerprint": "stuck"}


@each(("attempts", "row"), [
    ((_STUCK,), None),
    ((_STUCK, _STUCK), "step_stuck"),
    ((_STUCK, {"step": 40, "checkpoint": 40}, _STUCK), None),
    (({"category": "config", "step": 3}, _STUCK), None),
    ((_STUCK, {**_STUCK, "how": "interrupted"}), None),
], ids=["once", "twice in a row", "a training between", "another mistake before", "the job ended under it"])
def test_a_step_that_cannot_start_is_tried_once_more(attempts: tuple[Facts, ...], row: str | None) -> None:
    found = reason(run(*attempts))
    assert (found.row if found is not None else None) == row


@each("how", ["failed", "interrupted", "lost"])
def test_a_run_whose_last_attempt_surely_lost_its_progress_starts_nothing_more(how: str) -> None:
    before = run({"step": 40}, {"how": how, "from": 30, "path": "/c/30", "step": 3})
    lost = {"attempt": 2, "why": "it counts 1 … 3", "sure": True}
    state = fold([Event(2000.0, 1, 99, "n0", "lost_progress", lost)], before)
    found = reason(state)
    assert found is not None and (found.row, found.exit_code) == ("lost_progress", FAILED_FOR_GOOD)
    assert "it counts 1 … 3" in found.why and "restart.on_lost_progress: warn" in found.why
    warned = PLAN._replace(restart=PLAN.restart._replace(on_lost_progress="warn"))
    unsure = fold([Event(2000.0, 1, 99, "n0", "lost_progress", {**lost, "sure": False})], before)
    for one, plan in ((state, warned), (unsure, PLAN), (before, PLAN)):
        found = reason_to_give_up(one, plan)
        assert found is None or found.row != "lost_progress"


@each("how", ["failed", "interrupted", "lost"])
def test_a_run_whose_last_attempt_had_a_nan_loss_starts_nothing_more_where_on_nan_says_stop(how: str) -> None:
    nan = {"attempt": 2, "kind": "nan", "step": 45, "value": "nan"}
    before = run({"step": 40}, {"how": how, "from": 30, "path": "/c/30", "step": 50, "checkpoint": 50})
    state = fold([Event(2000.0, 1, 99, "n0", "odd_figure", nan)], before)
    stop = PLAN._replace(on_nan="stop")
    found = reason_to_give_up(state, stop)
    assert found is not None and (found.row, found.exit_code) == ("nan", FAILED_FOR_GOOD)
    assert "the loss of attempt 2 was nan from step 45 on (on_nan: stop)" in found.why
    for one, plan in ((state, PLAN), (before, stop)):
        found = reason_to_give_up(one, plan)
        assert found is None or found.row != "nan"


def test_the_same_failure_at_the_same_step_on_disjoint_nodes_is_a_proof() -> None:
    found = reason(run({"step": 40, "suspects": ["n0"]}, {"step": 40, "suspects": ["n1"]}))
    assert found is not None
    assert (found.row, found.exit_code) == ("proven", FAILED_FOR_GOOD)
    assert "attempts 1 and 2 failed alike at step 40, on n0 and on n1" in found.why


def test_the_same_failure_on_many_nodes_at_once_twice_is_a_proof() -> None:
    found = reason(run({"step": 40, "suspects": ["n0", "n1"]}, {"step": 40, "suspects": ["n0", "n1"]}))
    assert found is not None
    assert found.row == "proven"


@each(
    "second",
    [{"suspects": ["n0"]}, {"step": 41, "suspects": ["n1"]}, {"fingerprint": "crash", "suspects": ["n1"]},
     {"fingerprint": "", "suspects": ["n1"]}, {"suspects": []}, {"category": "node_failure", "suspects": ["n1"]}],
    ids=["on the same node", "at another step", "another failure", "nothing to compare", "nobody knows where",
         "another node dies"],
)
def test_anything_less_is_no_proof(second: Facts) -> None:
    first = {"step": 40, "suspects": ["n0"], **{k: v for k, v in second.items() if k in ("category",)}}
    if second.get("fingerprint") == "":
        first["fingerprint"] = ""
    assert reason(run(first, {"step": 40, **second})) is None


@each(
    "facts",
    [{}, {"step": 40, "code": 137}, {"step": 40, "code": 143}, {"category": "host_oom", "step": 40, "code": 137}],
    ids=["before the first step", "killed", "terminated", "killed, perhaps for its memory"])
def test_two_ends_that_nothing_explains_are_no_proof(facts: Facts) -> None:
    assert reason(run(*[{"suspects": [node], "confidence": 0.4, **facts} for node in ("n0", "n1")])) is None


def test_nvrxs_exit_code_for_do_not_restart_is_obeyed() -> None:
    found = reason(run({"code": 93}))
    assert found is not None
    assert found.row == "do_not_restart"


@each("category", ["user_code", "config", "environment", "cuda_oom"])
def test_a_bug_that_comes_before_the_first_step_stops_at_once(category: str) -> None:
    found = reason(run({"category": category}))
    assert found is not None
    assert found.row == "policy"


def test_an_unsure_verdict_stops_nothing() -> None:
    assert reason(run({"category": "user_code", "confidence": 0.6})) is None


def test_the_users_own_stop_is_obeyed_also_when_the_verdict_is_unsure() -> None:
    found = reason(run({"category": "network", "confidence": 0.5, "step": 9}), network="stop")
    assert found is not None
    assert found.row == "policy"


def test_a_bug_after_steps_is_tried_once_more_and_then_stopped_where_it_came_back() -> None:
    first: Facts = {"category": "user_code", "step": 40, "from": 10}
    assert reason(run(first)) is None
    assert reason(run(first, {**first, "step": 55})) is None
    found = reason(run(first, first))
    assert found is not None
    assert "since attempt 1 failed like this" in found.why


def test_a_run_that_made_steps_gets_another_try_when_a_later_start_fails() -> None:
    worked: Facts = {"category": "node_failure", "how": "lost", "step": 40}
    broken: Facts = {"category": "environment"}
    assert reason(run(worked, broken)) is None
    assert reason(run(worked, broken, broken)) is not None


def test_dead_nodes_have_a_budget_of_their_own() -> None:
    lost: Facts = {"category": "node_failure", "how": "lost", "suspects": []}
    assert reason(run(*[lost] * 10)) is None
    found = reason(run(*[lost] * 11))
    assert found is not None
    assert "11 failures of the category node_failure without a new checkpoint" in found.why


def test_a_run_whose_last_failure_has_had_its_node_excluded_tries_other_nodes_once_more() -> None:
    state = run(*[{"fingerprint": str(n), "suspects": ["n1"]} for n in range(PLAN.restart.max_without_progress)])
    assert reason(state) is not None
    excluded = replace(state, exclusions=(Exclusion("n1", "killed three attempts"),))
    assert reason(excluded) is None
    elsewhere = replace(excluded, attempts=(*state.attempts[:-1], replace(state.attempts[-1], nodes=("n0", "n2"))))
    assert reason(elsewhere) is not None
    assert reason_to_give_up(excluded,
                             PLAN._replace(restart=RestartPlan(2, 3, 60.0))) is not None, "the run's budget binds"


def test_a_checkpoint_is_rejected_though_an_attempt_was_interrupted_between_the_two_that_died_of_it() -> None:
    worked: Facts = {"step": 20, "checkpoint": 20, "how": "lost", "category": "node_failure"}
    died: Facts = {"path": "/c/20", "from": 20, "category": "user_code"}
    stopped: Facts = {"path": "/c/20", "from": 20, "how": "interrupted", "category": "preempted"}
    assert rejects_checkpoint(run(worked, died, stopped), PLAN) is None
    assert rejects_checkpoint(run(worked, died, stopped, died), PLAN) == (
        "attempts 2 and 4 died before their first step from it")


def test_a_checkpoint_is_rejected_where_nothing_but_itself_tells_that_an_older_start_made_steps() -> None:
    died: Facts = {"path": "/c/5", "from": 5, "category": "user_code", "confidence": 0.5}
    assert rejects_checkpoint(run({"how": "interrupted", "category": "preempted"}, died, died), PLAN) is not None
    assert rejects_checkpoint(run(died, died), PLAN) is None, "one that was there before the run: what else works?"


def test_a_verified_checkpoint_refills_every_budget_but_the_runs() -> None:
    failures: list[Facts] = [{"step": n, "fingerprint": str(n)} for n in range(2)]
    state = run(*failures, {"step": 5, "checkpoint": 5}, *failures)
    assert (state.failures_without_progress, state.failed_categories) == (2, ("unknown", "unknown"))
    assert reason(state) is None
    found = reason_to_give_up(state, PLAN._replace(restart=RestartPlan(4, 3, 60.0)))
    assert found is not None
    assert found.exit_code == BUDGET_SPENT


def test_time_limits_and_preemptions_cost_nothing() -> None:
    state = run(*[{"category": "preempted", "how": "interrupted"}] * 50)
    assert reason(state) is None
    assert state.restarts == 0


def test_an_attempt_that_dies_while_loading_rejects_its_checkpoint() -> None:
    state = run({"category": "checkpoint", "path": "/c/step_20.pt", "from": 20})
    assert rejects_checkpoint(state, PLAN) == "attempt 1 died while loading it: boom"


def test_a_checkpoint_that_was_loaded_is_not_rejected_by_a_later_failure() -> None:
    state = run({"category": "checkpoint", "path": "/c/step_20.pt", "from": 20, "step": 30})
    assert rejects_checkpoint(state, PLAN) is None


def test_two_deaths_before_the_first_step_reject_a_checkpoint_where_others_had_worked() -> None:
    worked: Facts = {"step": 25, "path": "/c/step_10.pt", "from": 10}
    dead: Facts = {"path": "/c/step_20.pt", "from": 20}
    assert rejects_checkpoint(run(worked, dead), PLAN) is None
    assert rejects_checkpoint(run(worked, dead, dead), PLAN) is not None
    assert rejects_checkpoint(run(dead, dead), PLAN) is None
    lost: Facts = {**dead, "category": "node_failure", "how": "lost"}
    assert rejects_checkpoint(run(worked, lost, lost), PLAN) is None


@each(("first", "second", "is_rejected"), [
    (None, None, True), (True, True, True), (None, True, True), (False, False, False), (False, None, False),
    (None, False, False),
], ids=["no words", "words of loading", "no words, then words", "an edit that raises at import", "an edit, then a kill",
        "a kill, then an edit"])
def test_what_raises_without_a_word_of_loading_costs_no_checkpoint(
    first: bool | None, second: bool | None, is_rejected: bool
) -> None:
    worked: Facts = {"step": 25, "path": "/c/10", "from": 10, "checkpoint": 20}
    died = [{"path": "/c/20", "from": 20, "category": "user_code", "of_loading": one} for one in (first, second)]
    assert (rejects_checkpoint(run(worked, *died), PLAN) is not None) == is_rejected
    sure: Facts = {**died[1], "category": "checkpoint"}
    assert rejects_checkpoint(run(worked, sure), PLAN) is not None, "its verdict names it"


def test_every_category_has_a_row_and_users_rows_replace_them() -> None:
    from safelaunch.why.categories import NAMES

    rows = policy.table((("network", "restart 5"), ("cuda_oom", "stop")))
    assert set(rows) == set(NAMES)
    assert (rows["network"].text, rows["network"].is_own) == ("restart 5", True)
    assert policy.response(PLAN, "not yet known").category == "unknown"


def test_a_checkpoint_that_is_left_out_gives_the_one_before_it_its_turn() -> None:
    state = run({"step": 5}, {"path": "/c/2", "from": 2}, {"path": "/c/2", "from": 2})
    assert reason(state) is not None
    rejected = fold([Event(2000.0, 1, 999, "n0", "checkpoint_rejected",
                           {"path": "/c/2", "step": 2, "why": "x"})], state)
    assert rejected.failures_without_progress == 0
    assert reason(rejected) is None


def test_failures_from_a_checkpoint_that_is_left_out_prove_nothing_against_the_one_before_it() -> None:
    worked: Facts = {"step": 25, "path": "/c/10", "from": 10}
    dead: Facts = {"category": "user_code", "confidence": 0.9, "path": "/c/20", "from": 20}
    older: Facts = {**dead, "path": "/c/15", "from": 15}
    left_out = Event(2000.0, 1, 999, "n0", "checkpoint_rejected", {"path": "/c/20", "step": 20, "why": "x"})
    both = run(worked, dead, dead)
    assert reason(both) is not None
    assert reason(fold([left_out], both)) is None
    assert reason(fold([left_out], run(worked, dead, dead, older))) is None


def test_a_checkpoint_that_was_written_anew_under_its_old_name_is_another_one() -> None:
    dead: Facts = {"category": "checkpoint", "path": "/c/last.ckpt", "from": 20}
    state = fold([Event(2000.0, 1, 999, "n0", "checkpoint_rejected", {"path": "/c/last.ckpt", "step": 20})], run(dead))
    assert ("/c/last.ckpt", 20) in state.rejected
    assert ("/c/last.ckpt", 40) not in state.rejected
    worked: Facts = {"step": 25, "path": "/c/last.ckpt", "from": 10}
    later: Facts = {"path": "/c/last.ckpt", "from": 20}
    assert rejects_checkpoint(run(worked, later, later), PLAN) is not None


def test_a_gpu_that_is_held_on_one_node_after_the_other_is_the_programs() -> None:
    def held(node: str, **more: Any) -> Facts:
        return {"category": "node_failure", "fingerprint": "node_failure:gpu.memory_held:x", "suspects": [node], **more}

    assert reason(run(held("n0"), held("n1"))) is None
    found = reason(run(held("n0"), held("n1"), held("n2")))
    assert found is not None and found.row == "proven" and "share a GPU" in found.why
    assert reason(run(held("n0"), held("n1"), held("n2", step=7))) is None
    assert reason(run(held("n0"), held("n0"), held("n0"))) is None   # it cannot be left out
