"""`hydra/launcher=safelaunch`: each job of a sweep is a supervised run (docs/python.md).

Hydra imports every module of this folder when a program starts, whatever its launcher. So this one imports nothing of
safelaunch or submitit before a sweep is launched. Nor can it import annotations from __future__: the import is Hydra's
own, and dataclasses then search the module in vain. The folder is no package of ours: others install into it, too.
"""

import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.config_store import ConfigStore
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, filter_overrides, run_job, setup_globals
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

if TYPE_CHECKING:
    import submitit

log = logging.getLogger(__name__)

BASIC_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"   # the only one that needs no results
MOST_NAME = 64   # letters of a run's name (config.keys)
GENERAL = frozenset(("timeout_min", "nodes", "tasks_per_node", "cpus_per_task", "gpus_per_node", "mem_gb"))
Section = dict[str, Any]


@dataclass
class SafelaunchLauncherConf:
    """The keys below hydra.launcher: this launcher's own, submitit's, some of sbatch's, and sections of train.yaml."""

    _target_: str = "hydra_plugins.safelaunch_launcher.SafelaunchLauncher"
    wait: bool = False
    folder: str = "${hydra.sweep.dir}/.safelaunch"
    max_num_timeout: int = 3

    name: str = "${hydra.job.name}"
    timeout_min: int = 60
    nodes: int = 1
    tasks_per_node: int = 1
    cpus_per_task: int | None = None
    gpus_per_node: int | None = None
    mem_gb: float | None = None

    account: str | None = None
    comment: str | None = None
    constraint: str | None = None
    exclude: str | None = None
    gres: str | None = None
    partition: str | None = None
    qos: str | None = None
    reservation: str | None = None
    additional_parameters: Section = field(default_factory=dict)
    setup: list[str] | None = None
    srun_args: list[str] | None = None

    cluster: str | None = None
    spare_nodes: int | None = None
    min_nodes: int | None = None
    nodes_multiple_of: int | None = None
    before_resize: str | None = None
    standby: bool | None = None
    on_nan: str | None = None
    checks: Section = field(default_factory=dict)
    container: Section = field(default_factory=dict)
    env: Section = field(default_factory=dict)
    hang: Section = field(default_factory=dict)
    kill_switch: Section = field(default_factory=dict)
    notify: Section = field(default_factory=dict)
    preserve_site: Section = field(default_factory=dict)
    progress: Section = field(default_factory=dict)
    restart: Section = field(default_factory=dict)
    resume: Section = field(default_factory=dict)
    slow: Section = field(default_factory=dict)
    srun: Section = field(default_factory=dict)
    suspects: Section = field(default_factory=dict)


ConfigStore.instance().store(group="hydra/launcher", name="safelaunch", node=SafelaunchLauncherConf,
                             provider="safelaunch")


def run_names(base: str, jobs: Sequence[Sequence[str]], first: int) -> list[str]:
    """The runs' names: `train-2-lr0.1-seed2`, with what differs between the jobs; of one job alone, all that is set."""
    names = []
    for number, job in enumerate(jobs, first):
        varied = [one.lstrip("+~") for one in job if len(jobs) == 1 or not all(one in other for other in jobs)]
        parts = [f"{key.rpartition('.')[2]}{value}" for key, _, value in (one.partition("=") for one in varied)]
        values = re.sub(r"[^A-Za-z0-9._]+", "-", "-".join(parts))
        head = f"{base}-{number}"
        names.append(f"{head}-{values}"[:max(len(head), MOST_NAME)].rstrip("-."))
    return names


class SafelaunchLauncher(Launcher):
    """Submits a run for each job. On the nodes it is the function that the run calls."""

    def __init__(self, wait: bool, folder: str, max_num_timeout: int, name: str, **others: Any) -> None:
        self.wait, self.folder, self.max_num_timeout, self.name = wait, folder, max_num_timeout, name
        plain = {key: OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
                 for key, value in others.items()}
        self.parameters = {key if key in GENERAL else f"safelaunch_{key}": value for key, value in plain.items()
                           if value not in (None, {}, [])}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """What Hydra tells a launcher before it launches."""
        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Submit them. What they return, once all have ended, with `wait`; else nothing, at once."""
        sweeper = self.config.hydra.sweeper._target_
        if not self.wait and sweeper != BASIC_SWEEPER:
            raise HydraException(f"the sweeper {sweeper} chooses jobs by the results of others: it needs "
                                 "hydra.launcher.wait=true. Nothing was submitted.")
        jobs = self._submit(job_overrides, initial_job_idx)
        if not self.wait:
            log.info("%d runs are submitted, and go on without this program (safelaunch status). "
                     "hydra.launcher.wait=true waits for them", len(jobs))
            return []
        return [self._returned(job, overrides, number)
                for number, (job, overrides) in enumerate(zip(jobs, job_overrides, strict=True), initial_job_idx)]

    def _submit(self, job_overrides: Sequence[Sequence[str]], first: int) -> "list[submitit.Job[JobReturn]]":
        try:
            import submitit
        except ModuleNotFoundError as error:
            raise HydraException("submitit is not installed: pip install 'safelaunch[hydra]'") from error
        sweep = self.config.hydra.sweep
        Path(sweep.dir).mkdir(parents=True, exist_ok=True)
        if "mode" in sweep:
            Path(sweep.dir).chmod(int(str(sweep.mode), 8))
        executor = submitit.AutoExecutor(self.folder, cluster="safelaunch",
                                         safelaunch_max_num_timeout=self.max_num_timeout)
        jobs: list[submitit.Job[JobReturn]] = []
        try:
            names = run_names(self.name, [filter_overrides(overrides) for overrides in job_overrides], first)
            for number, (name, overrides) in enumerate(zip(names, job_overrides, strict=True), first):
                executor.update_parameters(name=name, **self.parameters)
                jobs.append(executor.submit(self, list(overrides), number, Singleton.get_state()))
                log.info("\t#%d : %s : run %s", number, " ".join(filter_overrides(overrides)), jobs[-1].job_id)
        except submitit.core.utils.FailedSubmissionError as error:
            raise HydraException(f"{error}\n{len(jobs)} of {len(job_overrides)} jobs are submitted already. To end "
                                 "one: safelaunch stop RUN") from error
        return jobs

    def _returned(self, job: "submitit.Job[JobReturn]", overrides: Sequence[str], number: int) -> JobReturn:
        """What a job has returned, once its run has ended. A failure is a JobReturn, too: a sweeper may go on."""
        from submitit.core.utils import FailedJobError, UncompletedJobError

        try:
            returned: JobReturn = job.results()[0]
        except (FailedJobError, UncompletedJobError) as error:
            returned = JobReturn(overrides=list(overrides), status=JobStatus.FAILED, _return_value=error)
        if returned.status is JobStatus.FAILED:
            why = job.get_info(mode="cache").get("Sentence", "it has no result")
            log.error("#%d has failed: %s. See: safelaunch why %s", number, why, job.job_id)
        return returned

    def __call__(self, overrides: list[str], number: int, singletons: dict[Any, Any]) -> JobReturn:
        """Run the task in an attempt. Raises what it raises: else a run that has failed would end well."""
        Singleton.set_state(singletons)
        setup_globals()
        config = self.hydra_context.config_loader.load_sweep_config(self.config, overrides)
        with open_dict(config):
            config.hydra.job.id, config.hydra.job.num = os.environ["SAFELAUNCH_RUN_ID"], number
        returned = run_job(hydra_context=self.hydra_context, task_function=self.task_function, config=config,
                           job_dir_key="hydra.sweep.dir", job_subdir_key="hydra.sweep.subdir")
        _ = returned.return_value
        return returned

    def checkpoint(self, *arguments: Any) -> Any:
        """The same job again: the task itself goes on from what it has saved."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, *arguments)
