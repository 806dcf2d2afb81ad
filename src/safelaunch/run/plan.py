"""A run's plan: what the resolved config asks for, as plain values. The supervisor, which must start fast on a node,
makes it from `run.json`; at submit config has checked everything once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from safelaunch.base.timing import LEASE_S
from safelaunch.launch.containers import ContainerPlan
from safelaunch.launch.jobnumbers import OwnNumbers, has_even_tasks, own_numbers, spread, tasks_per_node
from safelaunch.launch.launchers import CUSTOM, LAUNCHERS, fill_args
from safelaunch.launch.settings import (
    AfterRun,
    ChecksPlan,
    HangPlan,
    KillSwitch,
    LaunchPlan,
    NotifyPlan,
    OwnScript,
    PreservePlan,
    RestartPlan,
    Resume,
    SbatchValue,
    Settings,
    SlowPlan,
    SlurmOptions,
    Srun,
    Suspects,
    read_settings,
)
from safelaunch.slurm.gpus import gpus_per_node

_RESUME_ARGS = r"\$(?:\{RESUME_ARGS\}|RESUME_ARGS(?![A-Za-z0-9_]))"

RESIZED = ".resized"   # behind resume.dir: the folder beside it, where before_resize writes


class Plan(NamedTuple):
    """All that one run needs to know of its train.yaml; durations in seconds."""

    run_id: str
    name: str
    run_dir: str
    cluster: str
    command: str
    setup: str
    env: tuple[tuple[str, str], ...]
    sbatch: tuple[tuple[str, str | None], ...]   # long option without dashes, its value (None: a flag)
    nodes: int
    gpus_per_node: int | None
    cpus_per_task: int | None
    ntasks_per_node: int
    launch: LaunchPlan
    srun: Srun
    resume: Resume
    step_pattern: str
    restart: RestartPlan
    kill_switch: KillSwitch
    preserve: PreservePlan
    spare_nodes: int = 0
    standby: bool = True
    suspects: Suspects = Suspects()
    hang: HangPlan = HangPlan()
    checks: ChecksPlan = ChecksPlan()
    notify: NotifyPlan = NotifyPlan()
    lease_s: float = LEASE_S
    loss_pattern: str = "auto"
    step_time_pattern: str = "auto"
    slow: SlowPlan = SlowPlan()
    container: ContainerPlan | None = None
    min_nodes: int | None = None    # None: only with `nodes`
    nodes_multiple_of: int = 1
    before_resize: str = ""
    after: tuple[AfterRun, ...] = ()
    numbers: OwnNumbers = OwnNumbers()
    on_nan: str | None = "report"   # None: a run of a version that had none; its figures are not watched
    own: OwnScript = OwnScript()

    @property
    def allocated_nodes(self) -> int:
        """Nodes of each job: those of an attempt, and the spares."""
        return self.nodes + self.spare_nodes

    @property
    def awaited(self) -> AfterRun:
        """What a run waits for that begins after this one, however it ends."""
        return AfterRun(self.name, self.run_dir, self.job_name, is_any=True)

    @property
    def tasks(self) -> int:
        return self.tasks_on(self.nodes)

    def tasks_on(self, nodes: int) -> int:
        """Tasks whose ends are the attempt's: those of its srun, or the script alone. Each has a node guard."""
        return 1 if self.is_script else nodes * self.ntasks_per_node

    @property
    def is_script(self) -> bool:
        """Whether the command is an sbatch script, which starts steps of its own."""
        return LAUNCHERS[self.launch.by].is_script

    def rank_layout(self, nodes: tuple[str, ...]) -> tuple[tuple[str, ...], int] | None:
        """An attempt's nodes and the ranks on each; None where its launcher or its script alone knows how many."""
        per_node = self.launch.nproc_per_node if LAUNCHERS[self.launch.by].starts_ranks else self.ntasks_per_node
        return None if self.is_script or not per_node else (nodes, per_node)

    @property
    def job_name(self) -> str:
        """Unique among the user's jobs, so that --dependency=singleton refuses two running jobs of one run."""
        return f"{self.name}.{self.run_id}"

    @property
    def kill_file(self) -> str:
        """Absolute path of the kill switch."""
        file = self.kill_switch.file
        return file if file.startswith("/") else f"{self.run_dir}/{file}"


def of_config(config: Mapping[str, object], run_id: str) -> Plan:
    """The plan of a run, from the config in its run.json."""
    return of_settings(read_settings(config), run_id)


def of_settings(settings: Settings, run_id: str) -> Plan:
    """The plan of what a run is asked for."""
    launch, slurm = settings.launch, settings.slurm
    if launch.by == CUSTOM:
        launch = launch._replace(args=fill_args(launch.call, launch.args))
    container = settings.container if settings.container.runtime else None
    checks, tasks, has_even = settings.checks, tasks_per_node(slurm, settings.launch), has_even_tasks(settings)
    if checks.after_failure == "auto":
        checks = checks._replace(after_failure="beside" if checks.boot else "off")
    return Plan(
        run_id=run_id, name=settings.name, run_dir=settings.run_dir, cluster=settings.cluster,
        command=settings.command if settings.is_script else array_form(settings.command),
        setup=settings.setup,
        env=tuple((key, str(value)) for key, value in settings.env.items()),
        sbatch=_options(spread(slurm, has_even)),
        nodes=_int(slurm.get("nodes")) or 1, gpus_per_node=gpus_per_node(slurm) or None,
        cpus_per_task=_int(slurm.get("cpus-per-task")), ntasks_per_node=tasks,
        numbers=own_numbers(slurm, tasks, has_even) if settings.is_script else OwnNumbers(),
        launch=launch, srun=settings.srun, resume=settings.resume,
        step_pattern=settings.progress.step, loss_pattern=settings.progress.loss,
        step_time_pattern=settings.progress.step_time,
        restart=settings.restart, kill_switch=settings.kill_switch, preserve=settings.preserve_site,
        spare_nodes=settings.spare_nodes, standby=settings.standby, suspects=settings.suspects,
        hang=settings.hang._replace(is_imported=container is not None and not container.is_file),
        container=container, checks=checks, notify=settings.notify, slow=settings.slow, on_nan=settings.on_nan,
        min_nodes=settings.min_nodes, nodes_multiple_of=settings.nodes_multiple_of,
        before_resize=settings.before_resize, after=settings.after,
        own=(settings.own or OwnScript())._replace(args=settings.args),
    )


def array_form(command: str) -> str:
    """The command with every unquoted `$RESUME_ARGS` as `"${RESUME_ARGS[@]}"`.

    Users write the short form, which is only the first word of an array: `--load` without its path.
    """
    if "RESUME_ARGS" not in command:
        return command
    pattern, done, quote, index = re.compile(_RESUME_ARGS), "", "", 0
    while index < len(command):
        char = command[index]
        word = pattern.match(command, index) if not quote else None
        if word:
            done, index = done + '"${RESUME_ARGS[@]}"', word.end()
            continue
        if char == "\\" and quote != "'":
            done, index = done + command[index:index + 2], index + 2
            continue
        if char in "'\"":
            quote = "" if quote == char else quote or char
        done, index = done + char, index + 1
    return done


def _options(slurm: SlurmOptions) -> tuple[tuple[str, str | None], ...]:
    """The sbatch options of the plan: one pair for each time an option is given."""
    rows: list[tuple[str, str | None]] = []
    for name, value in slurm.items():
        if value is None or value is False:
            continue
        for item in value if isinstance(value, list) else [value]:
            rows.append((name, None if item is True else str(item)))
    return tuple(rows)


def _int(value: SbatchValue) -> int | None:
    """An integer option's value; None where it is missing or of another form (sbatch judges that)."""
    if isinstance(value, bool) or value is None or isinstance(value, list):
        return None
    text = str(value)
    return int(text) if text.isdigit() else None
