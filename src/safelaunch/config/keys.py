"""The keys of train.yaml: one literal table, which the check, the JSON Schema and docs/train-yaml.md all follow."""

from __future__ import annotations

from typing import Any, NamedTuple

from safelaunch.config.kinds import containerkinds, notifykinds
from safelaunch.config.kinds.argumentlist import ArgumentList
from safelaunch.config.kinds.kinds import (
    CheckpointPattern,
    Duration,
    Flag,
    Integer,
    NameOf,
    OneOf,
    Path,
    Percentage,
    PolicyTable,
    ResumeArgs,
    Share,
    Shell,
    SignalName,
    SrunFlags,
    StepPattern,
    Text,
    TextLines,
    ValueKind,
    ZeroOrOne,
)
from safelaunch.config.sweeps import SweepTable
from safelaunch.extensions.plugins import BUILT_IN_FORMATS
from safelaunch.launch import containers, launchers
from safelaunch.launch.settings import FIELDS, OwnScript, Settings
from safelaunch.nodehealth.checks.names import CHECK_NAMES
from safelaunch.slurm import via

_A_NAME = "a name of letters, digits, . _ and -, at most 64, the first a letter or digit"
NAME_PATTERN = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
# The words of run.noticewords.WORDS, which is more than a submission needs.
NOTIFY_WHEN = ("gave_up", "completed", "stopped", "hang", "suspect_node", "restarted", "took_over", "lost_progress",
               "preserved", "held")
NOTIFY_DEFAULT = ("gave_up", "hang", "suspect_node", "completed", "held")


def _categories() -> tuple[str, ...]:
    """Of failures; their table takes a millisecond to import, and most configs name none."""
    from safelaunch.why import categories

    return categories.NAMES


def _policy_words() -> tuple[str, ...]:
    from safelaunch.why.causes.category import POLICY_WORDS

    return tuple(POLICY_WORDS)


class Key(NamedTuple):
    """One key: what it takes, its default as it would be written (None: nothing), and what it is for. Its field of
    Settings has its name (settings.FIELDS), and holds what `kind` reads.
    """

    kind: ValueKind
    default: str | tuple[str, ...] | None
    doc: str


# Sections whose keys are the user's own: names of variables, options of sbatch.
OPEN_SECTIONS: dict[str, str] = {
    "env": "Variables for setup and command: text as written. ${VAR} is filled in at submit, not on the nodes.",
    "slurm": "Any long option of sbatch, with - or _ (nodes: 16, gpus_per_node: 8). true sets a flag; false or null "
    "takes back what a site or user file set. An unknown option near a known one is an error; written with its dashes "
    '("--new-option": 1) it passes as it is.',
}

KEYS: dict[str, Key] = {
    "version": Key(Integer(1, 1), "1", "Version of this format."),
    "name": Key(Text(_A_NAME, NAME_PATTERN), None, "The run's name; by default the file's own name without .yaml."),
    "run_dir": Key(Path(), "runs/${name}", "The run folder; a relative one starts at the folder of train.yaml."),
    "cluster": Key(
        OneOf(("auto", "slurm", "local")),
        "auto",
        "Where to run: auto takes Slurm where there is one; local is this machine.",
    ),
    "command": Key(Shell(), None, "Required. What to train with: shell code, expanded by bash on the nodes only."),
    "script": Key(Path(), None, "Instead of command: an sbatch script in a file, which runs as it is. A relative path "
                  "starts at the folder of train.yaml (docs/scripts.md)."),
    "args": Key(ArgumentList(), (), "The script's arguments, its $1, $2, …; on the command line they stand behind the "
                "script's file (docs/scripts.md)."),
    "setup": Key(Shell(), "", "Shell code for each node, in bash, before the command, "
                 "which finds all that it sets (module load, activate, variables)."),
    "srun.wait": Key(
        Integer(0), "60", "With kill_on_bad_exit: 0, seconds that the other tasks have when one has failed; 0: no "
        "limit. For a script's own sruns their --wait, which is Slurm's own where this key is not given."
    ),
    "srun.kill_on_bad_exit": Key(
        ZeroOrOne(), "1", "End the attempt as soon as one task fails (--kill-on-bad-exit). For a script's own sruns it "
        "is Slurm's own where this key is not given."
    ),
    "srun.extra": Key(SrunFlags(), (), "More flags for srun, such as [--hint=nomultithread]."),
    "launch.with": Key(
        NameOf(tuple(launchers.LAUNCHERS)),
        None,
        "; ".join(f"{name}: {row.doc}" for name, row in launchers.LAUNCHERS.items()) + ". By default torchrun "
        "if nproc_per_node is given, else srun if there are several nodes, tasks or GPUs, else none. Also the "
        "name of a plugin (docs/plugins.md).",
    ),
    "launch.call": Key(
        TextLines(), (), "For with: custom, the words that start the ranks of a node, such as [mylaunch, --nodes, "
        '"{nnodes}", "{args}", --]; the command follows them (docs/launchers.md).'
    ),
    "launch.args": Key(
        TextLines(), (), "More options of the launcher, such as [--config_file, fsdp.yaml]; docs/launchers.md."
    ),
    "launch.nproc_per_node": Key(
        Integer(1), None, "The launcher's processes on each node; by default the GPUs of a node, or 1."
    ),
    "launch.tee": Key(Integer(0, 3), "3", "torchrun's --tee: which streams of each rank reach the log (3: both)."),
    "launch.torchrun": Key(
        OneOf(("auto", "agent", "direct")), "auto",
        "agent: torchrun's own agent starts the ranks of each node. direct: the node starts them itself, with "
        "torchrun's environment and without its imports, so that a restart is sooner (docs/launchers.md). auto: agent."
    ),
    "launch.logs": Key(
        OneOf(("merged", "per_rank", "both")), "merged",
        "With merged there is main.log alone. With per_rank or both there is also one file for each rank, "
        "attempts/N/ranks/rank-R-HOST.log. Steps, hangs and `why` are read from main.log, so it is always written."
    ),
    "launch.login_shell": Key(
        Flag(), "false", "Run setup in a login shell, which reads /etc/profile and ~/.bash_profile: #!/bin/bash -l."
    ),
    "container.runtime": Key(
        OneOf(tuple(containers.RUNTIMES)), None,
        "What runs setup and command in a container (docs/containers.md): "
        + "; ".join(f"{name}: {row.doc}" for name, row in containers.RUNTIMES.items()) + ".",
    ),
    "container.image": Key(Text("an image"), None, "The image, as the runtime takes it: a file, a folder, docker://…"),
    "container.mounts": Key(
        containerkinds.Mounts(), (), "Folders of the node to be seen inside, such as [/data, /scratch/me:/work:ro]."
    ),
    "container.workdir": Key(Path(), None, "The working directory inside; by default the job's own."),
    "container.env": Key(
        containerkinds.Variables(), None, "Variables inside, whatever the image sets; those of env: reach it, too."
    ),
    "container.extra": Key(TextLines(), (), "More flags for the runtime, such as [--rocm]; for pyxis flags of srun."),
    "resume.dir": Key(
        Path(),
        None,
        "Where the checkpoints are, as the command sees it: a relative one starts at the job's working directory.",
    ),
    "resume.format": Key(
        NameOf(BUILT_IN_FORMATS),
        "auto",
        "How checkpoints are laid out and when one is complete (docs/checkpoints.md); auto looks at what is there. "
        "Also the name of a plugin (docs/plugins.md).",
    ),
    "resume.pattern": Key(
        CheckpointPattern(), None, "For format: pattern, the file or folder of a step, such as step_{step}.pt."
    ),
    "resume.args": Key(
        ResumeArgs(),
        "",
        "What ${RESUME_ARGS} in command stands for once there is a checkpoint: its {path} and {step}.",
    ),
    "resume.by": Key(
        OneOf(("command", "training")),
        "command",
        "Who loads the checkpoint. With command, ${RESUME_ARGS} or $SAFELAUNCH_RESUME_PATH stands in command or setup. "
        "With training, the training finds its newest one in dir by itself, or a script reads those variables.",
    ),
    "resume.step": Key(
        Integer(0), None, "Start from the complete checkpoint of this step; later ones stay, and are not used."
    ),
    "resume.shared": Key(
        Flag(), "false", "Whether another living run, or another point of the sweep, may have the same dir."
    ),
    "resume.keep_trying": Key(
        Integer(0), "2", "How many older checkpoints to fall back to when attempts die while they load the newest."
    ),
    "progress.step": Key(
        StepPattern(), "auto", "auto knows the common trainers' lines; else a regular expression with one group."
    ),
    "progress.loss": Key(StepPattern(), "auto", "The same for the loss that `status` shows."),
    "progress.step_time": Key(StepPattern(), "auto", "The same for the time of a step; the group is in seconds."),
    "restart.max_restarts": Key(Integer(0), "30", "Restarts in all before the run gives up."),
    "restart.max_without_progress": Key(Integer(1), "3", "Failures in a row without progress before the run gives up."),
    "restart.max_jobs": Key(
        Integer(1), None, "Jobs of the run in all, the first one included; by default as many as bring it further."
    ),
    "restart.max_time": Key(
        Duration(), None, "For how long the run's jobs may run together, such as 7d; by default without bound."
    ),
    "restart.backoff": Key(Duration(), "60s", "Wait before a restart that follows a failure without progress."),
    "restart.via": Key(
        OneOf(via.CHOICES),
        "auto",
        "How the next job is made: successor (queued while this one runs), requeue, resubmit (queued when it ends), or "
        "watch (by `safelaunch watch` on a login node). With auto it is the first way that the site allows, and the "
        "run says which.",
    ),
    "restart.wait_for_nodes": Key(
        Duration(), "10m", "With min_nodes: how long to wait for a full set of nodes before going on with fewer."
    ),
    "restart.on_lost_progress": Key(
        OneOf(("stop", "warn")),
        "stop",
        "What to do when an attempt surely starts lower than all the checkpoints it could go on from: stop, before it "
        "overwrites them, or only warn.",
    ),
    "restart.warm": Key(
        OneOf(("auto", "true", "false")), "false",
        "With launch.torchrun: direct: import the next attempt's packages while this one trains (docs/launchers.md). "
        "auto: where twice the memory is free.",
    ),
    "restart.policy": Key(
        PolicyTable(_categories, _policy_words),
        None,
        "What to do after a failure of a category, such as {cuda_oom: stop, network: restart 5}; "
        "`safelaunch policy` prints the table.",
    ),
    "sweep": Key(
        SweepTable(), None,
        "One run for each point (docs/sweeps.md): names and their values, such as {lr: [1e-4, 3e-4], seed: 0-4}, or a "
        "list of points. A name is a key of train.yaml, or else a variable of setup and command.",
    ),
    "max_parallel": Key(Integer(1), None, "The most runs of the sweep that train at a time; by default all."),
    "spare_nodes": Key(Integer(0), "0", "Nodes asked for on top of slurm.nodes, to take the place of failed ones."),
    "min_nodes": Key(
        Integer(1), None, "Go on with as few nodes as this where no full set can be had (docs/smaller.md); by default "
        "only with slurm.nodes."
    ),
    "nodes_multiple_of": Key(
        Integer(1), "1", "With min_nodes: the numbers of nodes that the training can have are multiples of this."
    ),
    "before_resize": Key(
        Shell(), None, "With min_nodes: shell code that converts the checkpoint for another number of nodes. It runs "
        "on one node, after setup, and writes to $SAFELAUNCH_RESIZE_OUTPUT (docs/smaller.md)."
    ),
    "standby": Key(
        Flag(), "true", "From 2 nodes on, keep a second supervisor on another node: it goes on if the first one's dies."
    ),
    "suspects.exclude": Key(Flag(), "true", "Keep nodes with enough evidence against them out of the next attempts."),
    "suspects.max_excluded": Key(
        Share(), "10%", "The most nodes to keep out at once: a share of slurm.nodes (at least one node), or a number."
    ),
    "suspects.forget_after": Key(Duration(), "7d", "The time after which evidence against a node counts half."),
    "suspects.ledger": Key(
        Path(), None, "A folder for the evidence of a team's runs, from train.yaml's folder on; by default your own."
    ),
    "checks.boot": Key(
        Flag(), "false", "Check a job's nodes before its first attempt (docs/nodes.md); a node that fails is not used."
    ),
    "checks.after_failure": Key(
        OneOf(("auto", "off", "beside", "before")),
        "auto",
        "Check nodes after a failed attempt (docs/nodes.md). With beside no restart waits for it. With before each "
        "restart waits for light checks, 5 s at most. With off there are none. The default auto means beside with "
        "checks.boot, else off.",
    ),
    "checks.disk": Key(
        TextLines(), (), "Folders that each node must write and read back; a relative one starts at the job's working "
        "directory."
    ),
    "checks.allreduce": Key(
        Flag(), "false", "With checks.boot, also try the communication between the nodes, pair by pair (PyTorch; NCCL, "
        "or gloo without GPUs), in what is left of checks.timeout."
    ),
    "checks.timeout": Key(
        Duration(), "60s", "The most that the checks may delay an attempt. Tools that are slower than this count as "
        "failed or unknown."
    ),
    "checks.on_bad_node": Key(
        OneOf(("exclude", "report")), "exclude", "What follows for a node that fails: exclude, or only report it."
    ),
    "checks.skip": Key(
        TextLines(CHECK_NAMES, or_names=True), (), "Names of checks to leave out (docs/nodes.md), also of plugins'."
    ),
    "hang.no_progress": Key(
        Duration(may_be_auto=True),
        "auto",
        "The silence after which a hang check starts; auto learns it for each phase.",
    ),
    "hang.first_step": Key(Duration(), "60m", "How long an attempt may take to its first step."),
    "hang.dump_stacks": Key(Flag(), "true", "Look at all ranks' stacks before anything is ended, and keep them."),
    "hang.then": Key(
        OneOf(("restart", "preserve", "notify")),
        "restart",
        "What follows a hang that two witnesses confirm: restart, preserve (keep the site first), or notify (say it).",
    ),
    "slow.tolerance": Key(Percentage(), "5%", "How much longer steps may take for good before that is reported."),
    "slow.then": Key(
        OneOf(("report", "exclude_next", "restart")),
        "report",
        "What follows when steps take longer for good (docs/slow.md). With report it is said. With exclude_next all "
        "nodes are also measured before the next attempt, and slow ones excluded. With restart the run also stops at a "
        "checkpoint for that.",
    ),
    "on_nan": Key(
        OneOf(("report", "stop", "previous_checkpoint")),
        "report",
        "What follows when the loss is no finite number three times in a row. With report the job's output, the "
        "journal and `status` say it. With stop the run ends, too. With previous_checkpoint it restarts from the "
        "checkpoint before.",
    ),
    "kill_switch.file": Key(Path(), "control/kill", "Touch it to end the run; a relative one is in the run folder."),
    "kill_switch.grace": Key(Duration(), "15m", "How long the training may take to end by itself."),
    "kill_switch.group": Key(
        Text("the name of a group", "[A-Za-z0-9_][A-Za-z0-9_.@-]*"),
        None,
        "The Unix group whose members may end the run and read its folder; by default only you.",
    ),
    "kill_switch.signal": Key(SignalName(), "SIGUSR2", "The signal that asks the training to end."),
    "kill_switch.save_signal": Key(
        SignalName(), None, "The signal by which it saves and goes on (`safelaunch save`), if it handles one."
    ),
    "preserve_site.for": Key(Duration(), "0", "How long to keep failed nodes for people to look at; 0: not at all."),
    "preserve_site.when": Key(
        TextLines(("unknown", "hang"), all_words=_categories), ("unknown", "hang"), "The causes to keep them for."
    ),
    "preserve_site.nodes": Key(OneOf(("suspects", "all")), "suspects", "Which nodes to keep."),
    "notify.to": Key(
        notifykinds.Targets(), (), "Whom to tell: env:NAME and file:~/PATH (both hold a URL), mailto:USER@HOST, "
        "plugin:NAME; "
        "docs/notify.md. A URL itself is refused here, because it can hold a secret.",
    ),
    "notify.command": Key(
        notifykinds.Program(), (), "A program that gets each message on its standard input, such as [/path/prog, arg]."
    ),
    "notify.when": Key(
        TextLines(NOTIFY_WHEN), NOTIFY_DEFAULT, "What to tell of: " + ", ".join(NOTIFY_WHEN) + "."
    ),
    "notify.smtp": Key(
        Text("host:port of a mail server", r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}:[0-9]{1,5}"), None,
        "The mail server for mailto:, such as mail.example.org:25; by default the node's own sendmail.",
    ),
}


# path ▸ section ("" = in none), name in it, field of Settings there, and the key.
ROWS = tuple((path, section, name, FIELDS[section][name], key)
             for path, key in KEYS.items() for section, _, name in (path.rpartition("."),))


def dump(settings: Settings) -> dict[str, Any]:
    """Settings as run.json and `config --json` show them, which settings.read_settings takes back."""
    config: dict[str, Any] = {}
    for _, section, name, field, key in ROWS:
        subject = getattr(settings, section) if section else settings
        holder = config.setdefault(section, {}) if section else config
        holder[name] = _plain(getattr(subject, field), key)
    config |= {"env": dict(settings.env), "slurm": dict(settings.slurm)}
    if settings.checks.programs:
        config["checks"]["programs"] = list(settings.checks.programs)
    if settings.own is not None:
        config["own"] = {name: value for name, value in settings.own._asdict().items()
                         if value != OwnScript._field_defaults[name]}
    if settings.after:
        config["after"] = [one._asdict() for one in settings.after]
    return config


def _plain(value: Any, key: Key) -> Any:
    if value in ("", ()) and key.default is None:
        return None
    if isinstance(value, tuple):
        return dict(value) if isinstance(key.kind, PolicyTable | containerkinds.Variables) else list(value)
    return "auto" if value is None and key.default == "auto" else value
