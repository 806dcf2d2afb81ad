from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from safelaunch.why.io import logbounds, logchunks
from tests.why import fuzz


@pytest.fixture(params=["one block", "many blocks and pieces"], autouse=True)
def small_bounds(request: pytest.FixtureRequest) -> Iterator[None]:
    kept, block = {name: value for name, value in vars(logbounds).items() if name.isupper()}, logchunks.BLOCK
    if request.param != "one block":
        fuzz.make_small(Random(1))
        logchunks.BLOCK, logbounds.SMALL = 600, 20_000
    yield
    logchunks.BLOCK = block
    for name, value in kept.items():
        setattr(logbounds, name, value)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(b"")
@example(b"\xff" * 100)
@given(st.binary(max_size=1000))
def test_no_log_makes_reader_scan_or_judge_fail(tmp_path: Path, data: bytes) -> None:
    fuzz.check(data, tmp_path)


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.sampled_from([200, 1000, 3000]))
def test_no_long_log_makes_them_fail(tmp_path: Path, seed: int, size: int) -> None:
    fuzz.check(Random(seed).randbytes(size), tmp_path)


def test_what_is_grown_holds_samples_of_the_rules() -> None:
    log = fuzz.grow(Random(1).randbytes(4000))
    assert sum(line in log for line in fuzz.LINES) > 50 and log.count(b"\n") > 500
