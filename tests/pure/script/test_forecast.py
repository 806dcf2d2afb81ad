"""What a person is shown before a job is sent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.config.resolve import ConfigLayer, resolve
from safelaunch.run import plan
from safelaunch.run.plan import Plan
from safelaunch.script import forecast
from safelaunch.script.forecast import ExpectedStart, SubmissionFacts, changed_files, parse_test_only
from tests.slurmwords.texts import load_all
from tests.tables import each

FACTS = SubmissionFacts("16 nodes", ("resumes from ckpt/step_100.pt, step 100",), (),
                        ExpectedStart("2026-11-25T08:14:35", "n[0-1]", "main"), "0123456789abcdef", 0)


def made(*overrides: str) -> Plan:
    yaml = "command: train\nslurm: {nodes: 16, gpus_per_node: 8, time: '20:00:00'}\n"
    return plan.of_config(resolve([ConfigLayer("file", "train.yaml", yaml)], list(overrides), {}).config, "1a2b3c4d")


def said(label: str, facts: SubmissionFacts = FACTS, *overrides: str) -> str:
    rows = forecast.rows(made(*overrides), facts, lambda seconds: f"{seconds:.0f} s")
    return next(text for name, text, _ in rows if name == label)


@each("text", [text for text in load_all() if text.name in ("site-plain", "site-dependent", "site-too-many-nodes")])
def test_what_a_release_says_to_test_only_is_read(text: object) -> None:
    name, rc, words = text.name, text.rc, text.text   # type: ignore[attr-defined]
    found = parse_test_only(words, rc == 0)
    if name == "site-too-many-nodes":
        assert found.refusal == "allocation failure: Requested node configuration is not available"
    else:
        assert f" to start at {found.start} " in words and len(found.start) == len("2026-11-25T08:32:01")
        assert (found.nodes, found.partition) == ("n0", "main")


@each(("words", "is_ok", "field"), [
    ("", True, "trouble"), ("hello", True, "trouble"), ("", False, "refusal"), ("x" * 99_999, False, "refusal"),
    ("Job 1 to start at soon", True, "trouble")])
def test_an_answer_that_cannot_be_read_is_unknown_and_a_no_is_a_no(words: str, is_ok: bool, field: str) -> None:
    found = parse_test_only(words, is_ok)
    assert getattr(found, field) and not found.start and len(getattr(found, field)) < 400


@given(st.text(), st.booleans())
def test_no_answer_breaks_the_plan(words: str, is_ok: bool) -> None:
    assert said("start", FACTS._replace(start=parse_test_only(words, is_ok)))


def test_the_worst_case_counts_gpus_of_spares_and_of_every_restart() -> None:
    text = said("at most", FACTS, "spare_nodes=1", "restart.max_restarts=9")
    assert "2,720 GPU hours a job (16 and 1 spare nodes" in text and "27,200 if each of 9 restarts" in text
    assert "16 GPU hours a job" in said("at most", FACTS, "slurm.nodes=1", "slurm.time=120")
    assert "16 node hours a job" in said("at most", FACTS, "slurm.gpus_per_node=0", "slurm.time=1:00:00")


def test_without_a_time_limit_the_worst_case_is_unknown() -> None:
    assert said("at most", FACTS, "slurm.time=0").startswith("unknown GPU hours")


def test_who_is_excluded_is_told_with_the_reason_and_of_many_how_many() -> None:
    assert said("excluded") == "no node"
    many = tuple((f"n{i}", "Xid 79") for i in range(5))
    assert said("excluded", FACTS._replace(excluded=many)).endswith("n2 (Xid 79); and 2 more: safelaunch nodes")
    assert said("excluded", FACTS._replace(excluded=None)).startswith("unknown")


def test_when_it_starts_is_told_and_unknown_is_called_unknown() -> None:
    assert said("start") == "2026-11-25 08:14:35 on n[0-1] in partition main, as the queue is now"
    assert said("start", FACTS._replace(start=ExpectedStart(trouble="no answer"))) == "unknown: no answer"
    assert said("start", FACTS._replace(start=ExpectedStart(refusal="no"))) == "Slurm would refuse it: no"


def test_with_how_few_nodes_it_may_go_on_is_told() -> None:
    few = ("min_nodes=8", "nodes_multiple_of=4", "restart.wait_for_nodes=30m")
    assert said("nodes", FACTS, *few) == (
        "16; from 8 on, a multiple of 4, where no full set can be had within 1800 s, from the checkpoint as it is: "
        "there is no before_resize")
    assert "nodes" not in {name for name, _, _ in forecast.rows(made(), FACTS, str)}


def test_a_dirty_tree_is_told() -> None:
    assert said("git") == "commit 0123456789ab"
    assert "2 files differ" in said("git", FACTS._replace(dirty=2))
    assert "at least 2 files differ" in said("git", FACTS._replace(dirty=2, is_cut=True))
    assert said("git", FACTS._replace(commit=None)) == "unknown: git took too long"
    assert changed_files("diff --git a/x b/x\n+diff --git in a line\ndiff --git a/y b/y\n") == 2
    assert not [row for row in forecast.rows(made(), FACTS._replace(commit=""), str) if row[0] == "git"]
