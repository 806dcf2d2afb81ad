"""`why` over logs with a planted cause: found, put on the right rank, and never wrong with confidence."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safelaunch.why.io.logfiles import read_logs
from safelaunch.why.judge.engine import judge_log
from safelaunch.why.rulebook import RULES
from safelaunch.why.verdict import Verdict
from tests.pure.why.judged import COMPILED
from tests.tables import each
from tests.why.generator import Shape, Synthetic, make_log
from tests.why.plants import PLANTS, Plant

CONFIDENT = 0.8
LONG = os.environ.get("SAFELAUNCH_LONG") == "1"
BY_NAME = [pytest.param(plant, id=plant.name) for plant in PLANTS]
SHAPES = {
    "plain": Shape(hosts=8),
    "mixed, skewed clocks": Shape(hosts=8, skew_s=90.0, delay_s=4.0, scare=True),
    "no host in the prefix": Shape(hosts=8, prefix="default"),
    "srun -l": Shape(hosts=8, prefix="srun -l"),
    "a file per node": Shape(hosts=8, layout="a file per node", skew_s=60.0),
    "the end is missing": Shape(hosts=8, cut_bytes=30_000),
}


def explain(log: Synthetic) -> Verdict:
    """The verdict on the files as `why` reads them."""
    with TemporaryDirectory() as folder:
        paths = []
        for name, data in log.files.items():
            paths.append(Path(folder) / name)
            paths[-1].write_bytes(data)
        return judge_log(read_logs(paths, RULES, compiled=COMPILED))


def text_of(log: Synthetic) -> str:
    return b"".join(log.files.values()).decode(errors="replace")


def is_right(log: Synthetic, verdict: Verdict) -> bool:
    assert log.plant is not None
    return verdict.category in (log.plant.category, *log.plant.also)


def describe(verdict: Verdict) -> str:
    return f"{verdict.category} ({verdict.confidence:.2f}): {verdict.summary}; {verdict.host} {verdict.rank}; " \
           f"{verdict.cause.text if verdict.cause else None}"


@pytest.mark.parametrize("plant", BY_NAME)
def test_the_planted_cause_is_found_with_its_line_host_and_rank(plant: Plant) -> None:
    """In a plain log and in two other shapes, in turn; in all of them in the long form."""
    first, *others = SHAPES
    turn = PLANTS.index(plant)
    for name in (first, *(others if LONG else (others[turn % len(others)], others[(turn + 2) % len(others)]))):
        find(plant, SHAPES[name])


def find(plant: Plant, shape: Shape) -> None:
    """Fail where the cause is not found, or found with another line, host or rank."""
    log = make_log(plant, shape, seed=hash_of(plant))
    verdict = explain(log)
    if log.line not in text_of(log):   # cut off with the end
        assert verdict.category in ("none", "unknown"), describe(verdict)
        return
    assert is_right(log, verdict), describe(verdict)
    assert verdict.cause is not None and log.line in verdict.cause.text, describe(verdict)
    if log.host is not None:
        assert log.host in (verdict.host, *verdict.suspects), describe(verdict)
    if log.ranks:
        assert verdict.rank in log.ranks, describe(verdict)


def hash_of(plant: Plant) -> int:
    """A seed of the plant's own, the same in every process."""
    return sum(map(ord, plant.name))


@each("shape", SHAPES.values(), ids=SHAPES.keys())
def test_a_healthy_log_has_no_cause(shape: Shape) -> None:
    verdict = explain(make_log(None, shape, seed=7))
    assert verdict.category == "none" or (shape.cut_bytes and verdict.confidence < CONFIDENT), describe(verdict)


@pytest.mark.parametrize("plant", BY_NAME)
def test_tens_of_thousands_of_echoes_of_384_ranks_do_not_hide_it(plant: Plant) -> None:
    shape = Shape(echoes=100_000 if LONG else 20_000, skew_s=30.0, delay_s=2.0, scare=True)
    log = make_log(plant, shape, seed=hash_of(plant))
    verdict = explain(log)
    assert is_right(log, verdict) and verdict.cause is not None and log.line in verdict.cause.text, describe(verdict)


@settings(deadline=None, max_examples=int(os.environ.get("SAFELAUNCH_WHY_EXAMPLES", "120" if LONG else "60")))
@given(
    plant=st.sampled_from(PLANTS), seed=st.integers(0, 2**32), hosts=st.integers(2, 12),
    ranks_per_host=st.sampled_from((1, 4, 8)), steps=st.integers(0, 30), echoes=st.integers(0, 800),
    skew_s=st.floats(0, 600), delay_s=st.floats(0, 20), scare=st.booleans(), cut_bytes=st.integers(0, 20_000),
    prefix=st.sampled_from(("host:rank", "default", "srun -l", "none")),
    layout=st.sampled_from(("one file", "a file per node")),
)
def test_it_is_never_wrong_with_confidence(plant: Plant, seed: int, **shape: object) -> None:
    log = make_log(plant, Shape(**shape), seed)  # type: ignore[arg-type]
    verdict = explain(log)
    whole = text_of(log)
    if log.line in whole:   # the cut may have taken the cause away
        assert is_right(log, verdict) or verdict.confidence < CONFIDENT, describe(verdict)
    assert verdict.category != "none" or log.line not in whole, describe(verdict)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32), hosts=st.integers(1, 12), steps=st.integers(3, 40), scare=st.booleans(),
       prefix=st.sampled_from(("host:rank", "default", "srun -l", "none")), delay_s=st.floats(0, 20))
def test_a_healthy_log_raises_no_false_alarm(seed: int, **shape: object) -> None:
    verdict = explain(make_log(None, Shape(**shape), seed))  # type: ignore[arg-type]
    assert verdict.category in ("none", "unknown"), describe(verdict)


@settings(deadline=None, max_examples=40)
@given(plant=st.sampled_from([plant for plant in PLANTS if plant.lines and plant.speaker == "rank"]),
       seed=st.integers(0, 2**32))
def test_an_error_after_which_all_steps_go_on_is_no_cause(plant: Plant, seed: int) -> None:
    """Somebody caught it: the same lines as those that end a run, in the middle of a healthy log."""
    log = make_log(None, Shape(hosts=4, steps=30), seed)
    lines = log.files["main.log"].decode().splitlines()
    steps = [number for number, line in enumerate(lines) if " iteration " in line]
    middle = steps[len(steps) // 2]
    said = [f"[node001:3]:{line}" for line in plant.lines]
    text = "\n".join([*lines[:middle], *said, *lines[middle:]]) + "\n"
    verdict = explain(Synthetic({"main.log": text.encode()}, None))
    assert verdict.category in ("none", "unknown"), describe(verdict)
