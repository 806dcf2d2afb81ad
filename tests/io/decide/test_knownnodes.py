"""sbatch of the next job, tried once more without exclusions that leave too few nodes."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from safelaunch.decide.io.knownnodes import try_with_fewer
from safelaunch.slurm.io.slurm import Result

TOO_FEW = "sbatch: error: Batch job submission failed: Requested node configuration is not available"


@pytest.mark.parametrize(("exclude", "answers", "kept_out", "tried"), [
    (("n1",), ["99"], ("n1",), [("n1",)]),
    (("n1",), [TOO_FEW, "99"], (), [("n1",), ()]),
    (("n1",), [TOO_FEW, TOO_FEW], (), [("n1",), ()]),
    ((), [TOO_FEW], (), [()]),
    (("n1",), ["sbatch: error: Invalid account"], ("n1",), [("n1",)]),
], ids=["taken", "too few nodes are left", "and without them too", "nothing is excluded", "another reason"])
def test_the_next_job_is_submitted_again_only_where_its_exclusions_are_refused(
    exclude: tuple[str, ...], answers: list[str], kept_out: tuple[str, ...], tried: list[tuple[str, ...]]
) -> None:
    asked: list[tuple[str, ...]] = []

    def submit(names: tuple[str, ...]) -> Generator[Any, Result, Result]:
        asked.append(names)
        return (yield names)

    trying, said = try_with_fewer(exclude, submit), list(answers)
    next(trying)
    with pytest.raises(StopIteration) as done:
        while True:
            text = said.pop(0)
            trying.send(Result(("sbatch",), 0 if text.isdigit() else 1, text, text))
    assert (done.value.value[1], asked, said) == (kept_out, tried, [])
