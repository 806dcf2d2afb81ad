"""Other options for the later jobs of a run: what is taken, and what Slurm is told."""

from __future__ import annotations

import pytest

from safelaunch.errors import UsageError
from safelaunch.script import laterjobs
from tests.tables import each

BEFORE = {"time": "30", "partition": "main"}


@each(("words", "expected"), [
    ((), BEFORE),
    (("time=2:00:00",), {"time": "2:00:00", "partition": "main"}),
    (("slurm.partition=long,short",), {"time": "30", "partition": "long,short"}),
    (("time=", "qos=high"), {"partition": "main", "qos": "high"}),
    (("account=",), BEFORE),
], ids=["nothing", "another time", "as in train.yaml", "one taken back", "nothing to take back"])
def test_words_change_what_they_name(words: tuple[str, ...], expected: dict[str, str]) -> None:
    assert laterjobs.parse(words, BEFORE) == expected


@each("word", ["time=soon", "time=1h", "nodes=2", "partition=a b", "partition=--exclusive x", "qos=a\nb", "time"])
def test_what_no_job_can_have_is_refused(word: str) -> None:
    with pytest.raises(UsageError):
        laterjobs.parse((word,), {})


def test_slurm_is_told_the_change_and_the_runs_own_value_of_what_is_taken_back() -> None:
    assert laterjobs.options({"time": "30", "qos": "high"}) == ["--time=30", "--qos=high"]
    assert laterjobs.fields({"qos": "high"}, BEFORE, {"time": "10:00", "nodes": "2"}) == {
        "TimeLimit": "10:00", "QOS": "high"}


@each("found", [None, [], "x", {"time": 3, "nodes": "9", "partition": "a b"}])
def test_an_odd_file_changes_nothing(found: object) -> None:
    assert laterjobs.clean(found) == {}


@each(("given", "actual", "expected"), [
    ("main", "long", "long"), ("main,long", "long", "main,long"), ("main", "", "main"), (None, "long", None)])
def test_a_job_counts_the_nodes_of_the_partition_in_which_it_has_started(
    given: str | None, actual: str, expected: str | None
) -> None:
    sbatch = (("nodes", "2"), *([("partition", given)] if given else []))
    assert dict(laterjobs.in_partition(sbatch, actual)).get("partition") == expected
