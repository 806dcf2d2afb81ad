"""A run's plan: what the resolved config asks for, as plain values. The supervisor, which must start fast on a node,
makes it from `run.json`; at submit config has checked everything once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from safelaunch.base.timing import LEASE_S
from safelaunch.launch.containers import ContainerPlan
from safelaunch.launch.jobnumbers import OwnNumbers, has_even_tasks, own_numbers, spread, tasks_per_node
from safelaunch.launch.launchers import CUSTOM, LAUNCHERS, fill_args, is_direct
from safelaunch.run.ownscript import OwnScript
from safelaunch.slurm.gpus import gpus_per_node

_RESUME_ARGS = r"\$(?:\{RESUME_ARGS\}|RESUME_ARGS(?![A-Za-z0-9_]))"

RESIZED = ".resized"   # behind resume.dir: the folder beside it, where before_resize writes

SbatchValue = str | int | bool | list[str] | None


class LaunchPlan(NamedTuple):
    """How the training command is started, `by` which row of launch.launchers."""

    by: str
    nproc_per_node: int | None
    tee: int
    login_shell: bool = False   # setup runs in `bash -l`
    args: tuple[str, ...] = ()  # more options of the launcher; of CUSTOM its whole call
    logs: str = "merged"        # else one file for each rank as well
    is_direct: bool = False     # the node starts torchrun's ranks itself

    @property
    def local_ranks(self) -> int | None:
        """Ranks that a node's launcher numbers by itself; None: the numbers in a log are the training's own."""
        return self.nproc_per_node or None if LAUNCHERS[self.by].starts_ranks else None


class Srun(NamedTuple):
    """What becomes of the other tasks when one fails, and more options of srun. None: as Slurm has it, for the sruns of
    a user's own script, whose `words` hold what else was asked for.
    """

    wait_s: int | None
    kill_on_bad_exit: int | None
    extra: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """Options of a script's own sruns."""
        asked = (("wait", self.wait_s), ("kill-on-bad-exit", self.kill_on_bad_exit))
        return (*(f"--{name}={value}" for name, value in asked if value is not None), *self.extra)


class Resume(NamedTuple):
    """Where checkpoints appear and how the command is told of one; `dir` None = no resume."""

    dir: str | None
    format: str
    args: str
    pattern: str | None
    keep_trying: int = 2   # older checkpoints to fall back to
    by: str = "command"    # who loads it; `training`: it finds the newest one by itself
    step: int | None = None   # from which the first attempt starts; None: from the newest


class RestartPlan(NamedTuple):
    """Budgets: restarts of the run in all, failed attempts in a row without progress, and the pause between those.

    `via` says how a new job is made. `policy`: the user's rows of decide.budget.policy: category, "word" or "word N".
    `on_lost_progress` says whether an attempt that starts too low is ended (run.lost).
    """

    max_restarts: int
    max_without_progress: int
    backoff_s: float
    via: str = "auto"
    policy: tuple[tuple[str, str], ...] = ()
    on_lost_progress: str = "stop"
    wait_for_nodes_s: float = 600.0
    max_jobs: int | None = None         # of the run in all
    max_time_s: float | None = None     # of its jobs, together


class Suspects(NamedTuple):
    """How nodes with evidence against them are excluded; `max_excluded` is a share ("10%") or a number of nodes."""

    exclude: bool = True
    max_excluded: str = "10%"
    forget_after_s: float = 7 * 86400.0
    ledger: str | None = None


class KillSwitch(NamedTuple):
    """The file that ends the run when touched, and how gently."""

    file: str
    grace_s: float
    group: str | None
    signal: str
    save_signal: str | None = None   # by which it saves and goes on


class PreservePlan(NamedTuple):
    """How long failed nodes stay allocated for inspection by people; `for_s` 0 = not at all."""

    for_s: float
    when: tuple[str, ...]
    nodes: str


class HangPlan(NamedTuple):
    """When a silent training is checked, and what follows; `no_progress_s` None = learned."""

    no_progress_s: float | None = None
    first_step_s: float = 3600.0
    dump_stacks: bool = True
    then: str = "restart"
    is_on: bool = True
    is_imported: bool = False   # each start may bring an image to a node


class ChecksPlan(NamedTuple):
    """What is checked on nodes before a job's first attempt and after a failed one; what follows for one that fails."""

    boot: bool = False
    after_failure: str = "off"   # off, beside, before
    disk: tuple[str, ...] = ()
    timeout_s: float = 60.0
    on_bad_node: str = "exclude"
    skip: tuple[str, ...] = ()
    programs: tuple[Mapping[str, Any], ...] = ()   # name and fields of extensions.pluginvalues.CheckPlugin
    allreduce: bool = False


class SlowPlan(NamedTuple):
    """How much longer steps may take, as a share, before that is reported, and what follows."""

    tolerance: float = 0.05
    then: str = "report"
    is_on: bool = True


class NotifyPlan(NamedTuple):
    """Who is told of which events (notify); no `to` and no `command` = nobody."""

    to: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    when: tuple[str, ...] = ()
    smtp: str | None = None   # host:port; None = the node's own sendmail


class AfterRun(NamedTuple):
    """Another run, which must have ended before the first attempt; `is_any`: however it ended, else well."""

    name: str
    run_dir: str
    job_name: str
    is_any: bool = False


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


def make(config: Mapping[str, Any], run_id: str) -> Plan:
    """The plan of a resolved config (see config.resolve: complete, durations in seconds)."""
    slurm: Mapping[str, SbatchValue] = config["slurm"]
    launch = _launch(config["launch"])
    gpus, container = gpus_per_node(slurm) or None, _container(config.get("container"))
    tasks, has_even = tasks_per_node(slurm, config["launch"]), has_even_tasks(config)
    return Plan(
        run_id=run_id,
        name=config["name"],
        run_dir=config["run_dir"],
        cluster=config["cluster"],
        command=config["command"] if LAUNCHERS[launch.by].is_script else array_form(config["command"]),
        setup=config["setup"] or "",
        env=tuple((key, str(value)) for key, value in config["env"].items()),
        sbatch=_options(spread(slurm, has_even)),
        nodes=_int(slurm.get("nodes")) or 1,
        gpus_per_node=gpus,
        cpus_per_task=_int(slurm.get("cpus-per-task")),
        ntasks_per_node=tasks,
        numbers=own_numbers(slurm, tasks, has_even) if LAUNCHERS[launch.by].is_script else OwnNumbers(),
        launch=launch,
        srun=Srun(config["srun"]["wait"], config["srun"]["kill_on_bad_exit"], tuple(config["srun"]["extra"])),
        resume=_resume(config["resume"]),
        step_pattern=config["progress"]["step"],
        restart=_restart(config["restart"]),
        kill_switch=KillSwitch(
            config["kill_switch"]["file"], config["kill_switch"]["grace"], config["kill_switch"]["group"],
            config["kill_switch"]["signal"], config["kill_switch"].get("save_signal"),
        ),
        preserve=PreservePlan(
            config["preserve_site"]["for"], tuple(config["preserve_site"]["when"]), config["preserve_site"]["nodes"],
        ),
        spare_nodes=int(config.get("spare_nodes", 0)),
        standby=bool(config.get("standby", False)),   # a run of a version that had none goes on without
        suspects=_suspects(config.get("suspects")),
        hang=_hang(config.get("hang"), container),
        container=container,
        checks=_checks(config.get("checks")),
        notify=_notify(config.get("notify")),
        loss_pattern=config["progress"].get("loss", "auto"),
        step_time_pattern=config["progress"].get("step_time", "auto"),
        slow=_slow(config.get("slow")),
        after=tuple(AfterRun(**one) for one in config.get("after") or ()),   # set by submit, not in train.yaml
        on_nan=config.get("on_nan"),
        min_nodes=config.get("min_nodes"),
        nodes_multiple_of=int(config.get("nodes_multiple_of", 1)),
        before_resize=config.get("before_resize") or "",
        own=OwnScript(**config.get("own") or {}, args=tuple(config.get("args") or ())),
    )


def _launch(section: Mapping[str, Any]) -> LaunchPlan:
    args = tuple(section.get("args") or ())   # a run of a version that had none
    args = fill_args(section["call"], args) if section["with"] == CUSTOM else args
    return LaunchPlan(section["with"], section["nproc_per_node"], section["tee"],
                      bool(section.get("login_shell", False)), args, section.get("logs", "merged"),
                      is_direct(section))


def _resume(section: Mapping[str, Any]) -> Resume:
    return Resume(section["dir"], section["format"], section["args"] or "", section.get("pattern"),
                  int(section.get("keep_trying", 2)), section.get("by", "command"), section.get("step"))


def _restart(section: Mapping[str, Any]) -> RestartPlan:
    return RestartPlan(section["max_restarts"], section["max_without_progress"], section["backoff"],
                       section.get("via", "auto"), tuple((section.get("policy") or {}).items()),
                       section.get("on_lost_progress", "warn"),   # a run of a version that had none
                       float(section.get("wait_for_nodes", 600.0)), section.get("max_jobs"), section.get("max_time"))


def _suspects(section: Mapping[str, Any] | None) -> Suspects:
    if section is None:
        return Suspects(exclude=False)
    return Suspects(section["exclude"], section["max_excluded"], section["forget_after"], section["ledger"])


def _container(section: Mapping[str, Any] | None) -> ContainerPlan | None:
    if section is None or section["runtime"] is None:   # also a run of a version that had none
        return None
    return ContainerPlan(section["runtime"], section["image"], tuple(section["mounts"]), section["workdir"],
                         tuple((section["env"] or {}).items()), tuple(section["extra"]))


def _hang(section: Mapping[str, Any] | None, container: ContainerPlan | None) -> HangPlan:
    if section is None:
        return HangPlan(is_on=False)   # a run of a version that had none
    no_progress = section["no_progress"]
    return HangPlan(None if no_progress == "auto" else float(no_progress), section["first_step"],
                    section["dump_stacks"], section["then"],
                    is_imported=container is not None and not container.is_file)


def _checks(section: Mapping[str, Any] | None) -> ChecksPlan:
    if section is None:
        return ChecksPlan()   # a run of a version that had none
    after = section.get("after_failure", "off")   # a run of a version that had none
    if after == "auto":
        after = "beside" if section["boot"] else "off"
    return ChecksPlan(section["boot"], after, tuple(section["disk"]), section["timeout"], section["on_bad_node"],
                      tuple(section["skip"]), tuple(section.get("programs", ())), section.get("allreduce", False))


def _slow(section: Mapping[str, Any] | None) -> SlowPlan:
    if section is None:
        return SlowPlan(is_on=False)   # a run of a version that had none
    return SlowPlan(float(section["tolerance"].rstrip("%")) / 100, section["then"])


def _notify(section: Mapping[str, Any] | None) -> NotifyPlan:
    if section is None:
        return NotifyPlan()   # a run of a version that had none
    return NotifyPlan(tuple(section["to"]), tuple(section["command"]), tuple(section["when"]), section["smtp"])


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


def _options(slurm: Mapping[str, SbatchValue]) -> tuple[tuple[str, str | None], ...]:
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
