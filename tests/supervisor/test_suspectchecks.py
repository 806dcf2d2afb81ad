"""The job of its own in which a suspect of another job is checked."""

from __future__ import annotations

from typing import Any

from safelaunch.supervisor.nodes.suspectchecks import own_job
from tests.pure.decide.situations import PLAN
from tests.tables import each


@each(("changes", "options"), [
    ({"sbatch": (), "gpus_per_node": None}, ()),
    ({"sbatch": (), "gpus_per_node": 8}, ("--gpus-per-node=8",)),
    ({"sbatch": (("gres", "gpu:a100:4"),), "gpus_per_node": 4}, ("--gres=gpu:a100:4",)),
    ({"sbatch": (("comment", "x"), ("partition", "big"), ("qos", "low"), ("account", "")), "gpus_per_node": None},
     ("--partition=big", "--qos=low")),
    ({"sbatch": (("clusters", "alpha"), ("reservation", "maint")), "gpus_per_node": None},
     ("--reservation=maint", "--clusters=alpha")),
], ids=["nothing is asked for", "GPUs", "GPUs in Slurm's own words", "where the run's jobs run", "in a federation"])
def test_it_runs_where_the_runs_jobs_run_and_sees_all_gpus(changes: dict[str, Any], options: tuple[str, ...]) -> None:
    assert own_job(PLAN._replace(**changes)) == ("--exclusive", *options)
