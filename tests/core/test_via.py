"""What a refusal of sbatch says about how a next job can be made."""

from __future__ import annotations

import pytest

from safelaunch.core import via
from safelaunch.core.config.keys import KEYS
from safelaunch.core.config.kinds import Choice


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("sbatch: error: Batch job submission failed: Job dependency problem", True),
        ("sbatch: error: job dependencies are not allowed here\n"
         "sbatch: error: Batch job submission failed: Unspecified error", True),
        ("sbatch: error: Batch job submission failed: Access/permission denied", False),
        ("sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates "
         "accounting/QOS policy (job submit limit, user's size and/or time limits)", False),
        ("sbatch: No such file or directory", False),
    ],
    ids=["Slurm itself", "a site's job_submit.lua (measured)", "AllocNodes", "a limit on submissions", "no sbatch"],
)
def test_a_refused_dependency_is_told_from_other_refusals(said: str, expected: bool) -> None:
    assert via.is_dependency_refused(said) == expected


def test_every_way_that_train_yaml_can_name_has_its_sentence() -> None:
    kind = KEYS["restart.via"].kind
    assert isinstance(kind, Choice) and set(kind.words) == {"auto", *via.SENTENCES}
