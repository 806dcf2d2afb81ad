"""What a run is asked for: one immutable value, from train.yaml to the job.

Each key of train.yaml (config.keys.KEYS) has one field here: of the same name, with _s behind seconds; `with` is `by`.
The default of a field is not the key's: a run goes by it whose run.json has no such key, as of a version that had none.
This must stay small: the supervisor on a node and each verb read the settings of a run.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any, NamedTuple

from safelaunch.launch.containers import ContainerPlan
from safelaunch.launch.launchers import LAUNCHERS, Launcher
from safelaunch.slurm.gpus import gpus_per_node

SbatchValue = str | int | bool | list[str] | None
SlurmOptions = Mapping[str, SbatchValue]   # names as sbatch has them


class LaunchPlan(NamedTuple):
    """How the training command is started, `by` which row of launch.launchers."""

    by: str
    nproc_per_node: int | None
    tee: int
    login_shell: bool = False   # setup runs in `bash -l`
    args: tuple[str, ...] = ()  # more options of the launcher; in a plan those of CUSTOM with its `call`
    logs: str = "merged"        # else one file for each rank as well
    call: tuple[str, ...] = ()
    torchrun: str = "agent"     # auto, agent, direct

    @property
    def is_direct(self) -> bool:
        """Whether a node starts torchrun's ranks itself (node/ranks.py)."""
        return self.torchrun == "direct"

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
    args: str = ""
    pattern: str | None = None
    keep_trying: int = 2   # older checkpoints to fall back to
    by: str = "command"    # who loads it; `training`: it finds the newest one by itself
    step: int | None = None   # from which the first attempt starts; None: from the newest
    shared: bool = False      # another living run may have the same `dir`


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
    on_lost_progress: str = "warn"
    wait_for_nodes_s: float = 600.0
    max_jobs: int | None = None         # of the run in all
    max_time_s: float | None = None     # of its jobs, together
    warm: str = "false"                 # auto, true, false: interpreters wait for the next attempt (node/warm)


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
    after_failure: str = "off"   # auto, off, beside, before; in a plan no auto
    disk: tuple[str, ...] = ()
    timeout_s: float = 60.0
    on_bad_node: str = "exclude"
    skip: tuple[str, ...] = ()
    programs: tuple[Mapping[str, object], ...] = ()   # name and fields of extensions.pluginvalues.CheckPlugin
    allreduce: bool = False


class SlowPlan(NamedTuple):
    """How much longer steps may take before that is reported, and what follows."""

    tolerance: str = "5%"
    then: str = "report"
    is_on: bool = True

    @property
    def share(self) -> float:
        return float(self.tolerance.rstrip("%")) / 100


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


class ProgressPlan(NamedTuple):
    """How steps, the loss and the time of a step are found in the log: `auto`, or a pattern with one group."""

    step: str
    loss: str = "auto"
    step_time: str = "auto"


class OwnScript(NamedTuple):
    """A user's own sbatch script as sbatch would see it: its file, its arguments, and options as it writes them (None:
    it does not) where safelaunch sets those of the job.
    """

    path: str = ""
    job_name: str | None = None   # None: the run's name
    output: str | None = None
    error: str | None = None
    open_mode: str | None = None
    signal: str | None = None
    args: tuple[str, ...] = ()    # in a plan
    array: str = ""               # ARRAY_TASK of an array's task

    def traps_signal(self, text: str) -> bool:
        """Whether the shell of this script wants the signal before the time limit itself (sbatch(1), --signal=B:)."""
        return (self.signal or "").upper().startswith("B:") and "trap" in text


class _Subjects(NamedTuple):
    name: str
    run_dir: str
    cluster: str
    command: str
    env: Mapping[str, str]
    slurm: SlurmOptions
    launch: LaunchPlan
    srun: Srun
    resume: Resume
    progress: ProgressPlan
    restart: RestartPlan
    kill_switch: KillSwitch
    preserve_site: PreservePlan
    version: int = 1
    setup: str = ""
    script: str | None = None
    args: tuple[str, ...] = ()
    container: ContainerPlan = ContainerPlan()
    sweep: Mapping[str, str] | None = None   # of a point: its names and values
    max_parallel: int | None = None
    spare_nodes: int = 0
    min_nodes: int | None = None             # None: only with slurm.nodes
    nodes_multiple_of: int = 1
    before_resize: str = ""
    standby: bool = False
    suspects: Suspects = Suspects(exclude=False)
    checks: ChecksPlan = ChecksPlan()
    hang: HangPlan = HangPlan(is_on=False)
    slow: SlowPlan = SlowPlan(is_on=False)
    on_nan: str | None = None
    notify: NotifyPlan = NotifyPlan()
    own: OwnScript | None = None
    after: tuple[AfterRun, ...] = ()         # set by submit


class Settings(_Subjects):
    """All that train.yaml and the layers below it ask for; durations in seconds. `with_` makes another one."""

    __slots__ = ()
    with_ = _Subjects._replace

    @property
    def launcher(self) -> Launcher:
        return LAUNCHERS[self.launch.by]

    @property
    def is_script(self) -> bool:
        """Whether the command is an sbatch script, which starts steps of its own."""
        return self.launcher.is_script

    @property
    def gpus_per_node(self) -> int:
        return gpus_per_node(self.slurm)

    def resume_folder(self, cwd: str) -> str | None:
        """Where its checkpoints are, of a submission in this folder; None without resume.dir."""
        folder = self.resume.dir
        return None if folder is None else posixpath.join(cwd, str(self.slurm.get("chdir") or ""), folder)


_SECTIONS: dict[str, type[Any]] = {
    "launch": LaunchPlan, "srun": Srun, "container": ContainerPlan, "resume": Resume, "progress": ProgressPlan,
    "restart": RestartPlan, "suspects": Suspects, "checks": ChecksPlan, "hang": HangPlan, "slow": SlowPlan,
    "kill_switch": KillSwitch, "preserve_site": PreservePlan, "notify": NotifyPlan, "own": OwnScript,
}
_BY = {"launch.by": "with"}
_OPEN = frozenset(("env", "slurm", "sweep"))   # mappings whose keys are no fields
# Section ▸ key ▸ field of its class; "" holds the keys outside of sections.
FIELDS: dict[str, dict[str, str]] = {
    section: {_BY.get(f"{section}.{field}", field.removesuffix("_s")): field for field in fields}
    for section, fields in (("", _Subjects._fields), *((name, made._fields) for name, made in _SECTIONS.items()))
}


def read_settings(config: Mapping[str, object]) -> Settings:
    """The settings that run.json holds as `config`, of any version: a key that is not known is passed over. Raises
    TypeError, ValueError, KeyError or AttributeError where it holds none.
    """
    return Settings(**{field: _subject(key, value) for key, field, value in _given("", config, Settings)})


def _given(section: str, config: Mapping[str, object], made: type[Any]) -> list[tuple[str, str, Any]]:
    """(key, field, value) of those that are there; null counts as absent where the field has a default."""
    return [(key, field, config[key]) for key, field in FIELDS[section].items()
            if key in config and (config[key] is not None or field not in made._field_defaults)]


def _subject(key: str, value: Any) -> Any:
    if (made := _SECTIONS.get(key)) is not None:
        return made(**{field: _frozen(field, one) for _, field, one in _given(key, value, made)})
    if key == "after":
        return tuple(AfterRun(**one) for one in value or ())
    return value if key in _OPEN else _frozen(key, value)


def _frozen(field: str, value: Any) -> Any:
    """A list as a tuple, a mapping as pairs; None for the seconds that are learned."""
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dict):
        return tuple(value.items())
    return None if value == "auto" and field.endswith("_s") else value
