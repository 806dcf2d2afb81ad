"""What a refusal of sbatch says about how a next job can be made."""

from __future__ import annotations

from safelaunch.config.keys import KEYS
from safelaunch.config.kinds.kinds import OneOf
from safelaunch.slurm import via
from safelaunch.supervisor.ends import handover
from tests.tables import each


@each(
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


def test_every_way_that_train_yaml_can_name_is_a_row_that_the_supervisor_can_go() -> None:
    kind = KEYS["restart.via"].kind
    assert isinstance(kind, OneOf) and set(kind.words) == {"auto", *via.WAYS} == {"auto", *handover._WAYS}
    assert all(row.sentence for row in via.WAYS.values())


def test_a_way_of_a_later_version_is_told_by_its_name() -> None:
    assert via.sentence("teleport") == "teleport" and not via.is_at_end("teleport") and not via.is_at_end("auto")


def test_which_ways_leave_no_job_in_the_queue_before_the_end() -> None:
    assert [name for name in via.WAYS if via.is_at_end(name)] == [via.RESUBMIT, via.REQUEUE]
