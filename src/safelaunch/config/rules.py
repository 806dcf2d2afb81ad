"""What one key alone cannot say: defaults that follow from other keys, and keys that need or exclude each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from safelaunch.base.yaml.yamlnodes import Origin
from safelaunch.config.handed import unfit, unfit_for_output
from safelaunch.config.keys import KEYS
from safelaunch.config.kinds.pluginnames import look_up
from safelaunch.config.resumeway import missing_way
from safelaunch.config.values import parse_duration_s
from safelaunch.errors import Problem
from safelaunch.launch.containers import RUNTIMES, split_mount
from safelaunch.launch.jobnumbers import number_faults
from safelaunch.launch.launchers import CUSTOM, LAUNCHERS, Launcher, call_fault, default_launcher, owned_flag
from safelaunch.launch.settings import LaunchPlan, Settings

if TYPE_CHECKING:
    from safelaunch.extensions.pluginvalues import FindPlugin

_UNKNOWN = Origin("default", "", 0, 0)


def complete(
    settings: Settings,
    origins: Mapping[str, Origin],
    *,
    environ: Mapping[str, str],
    base_dir: str,
    file: str,
    faulty: frozenset[str],
    find_plugin: FindPlugin,
) -> tuple[Settings, list[Problem]]:
    """The settings with what follows from other keys; the problems between keys, unless a key has one already."""
    rules = (_command_rules, _slurm_rules, _launch_rules, _resume_rules, _container_rules, _resize_rules, _sweep_rules)
    settings, found = look_up(settings, find_plugin)
    settings = _with_launcher(settings, origins)
    found += [fault for rule in rules for fault in rule(settings, origins)]
    settings, faults = _with_paths(settings, environ, base_dir)
    found += [*faults, *_way_rules(settings), *number_faults(settings)]
    problems = []
    for key, needs, text in found:
        if not faulty.isdisjoint((key, *needs)):
            continue
        place = next((origins[one] for one in (key, *needs) if one in origins and origins[one].line), _UNKNOWN)
        if place is _UNKNOWN and (origin := origins.get(key)) is not None and origin.layer == "command line":
            place = origin
        problems.append(Problem(place.file or file, place.line, place.column, key, text))
    return settings, problems


# (the key, other keys it depends on, what is wrong)
Fault = tuple[str, tuple[str, ...], str]


def _with_launcher(settings: Settings, origins: Mapping[str, Origin]) -> Settings:
    """What the launcher settles, or who it is by default."""
    launch, srun, kill_switch, slurm = settings.launch, settings.srun, settings.kill_switch, settings.slurm
    gpus = settings.gpus_per_node
    if not launch.by:
        wide = gpus > 0 or slurm.get("nodes", 1) != 1 or "gpus-per-task" in slurm or slurm.get("ntasks", 1) != 1
        launch = launch._replace(by=default_launcher(launch.nproc_per_node is not None, wide))
    launcher, usual = LAUNCHERS[launch.by], {key for key, place in origins.items() if place.layer == "default"}
    if launcher.is_script:   # to its sruns nothing is added that nobody has asked for
        srun = srun._replace(wait_s=None if "srun.wait" in usual else srun.wait_s, kill_on_bad_exit=None
                             if "srun.kill_on_bad_exit" in usual else srun.kill_on_bad_exit)
    if launcher.notice and "kill_switch.signal" in usual:
        kill_switch = kill_switch._replace(signal=launcher.notice)
    if launcher.starts_ranks and launch.nproc_per_node is None:
        launch = launch._replace(nproc_per_node=gpus or 1)
    return settings.with_(launch=launch, srun=srun, kill_switch=kill_switch)


def _command_rules(settings: Settings, origins: Mapping[str, Origin]) -> list[Fault]:
    command = settings.command
    if settings.script is not None and (found := _script_rules(settings, origins)):
        return found
    if not command.strip():
        missing = origins["command"].layer == "default"
        return [("command", (), f"{'missing' if missing else 'empty'}; it says what to train with"
                 f"{', such as command: python train.py' if missing else ''}")]
    if not settings.is_script:   # a script's text lies in a file; a command is given to a process
        if fault := unfit(command):
            return [("command", ("launch.with",), fault)]
        return [("args", ("launch.with",), "are those of a script; write them into command:")] if settings.args else []
    faults: list[Fault] = []
    if not command.startswith("#!"):
        faults.append(("command", ("launch.with",), "with launch.with: script it is the text of an sbatch script, "
                       "which begins with #!/bin/bash; a script in a file: safelaunch submit job.slurm"))
    if settings.setup.strip():
        faults.append(("setup", ("launch.with",), "has no meaning with launch.with: script; write it into the script"))
    return faults


def _script_rules(settings: Settings, origins: Mapping[str, Origin]) -> list[Fault]:
    """The script's own text stands in a layer below train.yaml (scriptlayer.script_path)."""
    here = origins["script"]
    if origins["command"].layer == "default" or here.layer != "file":
        return [("script", (), "is read where it stands in train.yaml only; without one: safelaunch submit job.slurm")]
    if origins["command"].file == here.file or origins["command"].layer != "file":
        return [("command", ("script",), "script: is there, too; one of them says what to train with")]
    if not settings.is_script:
        return [("launch.with", ("script",), "script: runs as it is; leave this key out")]
    return []


def _sweep_rules(settings: Settings, origins: Mapping[str, Origin]) -> list[Fault]:
    mine = origins["max_parallel"].layer in ("file", "command line")   # a site may well limit all sweeps
    if settings.sweep is None and settings.max_parallel is not None and mine:
        return [("max_parallel", ("sweep",), "needs sweep: what the runs differ in")]
    return []


def _slurm_rules(settings: Settings, origins: Mapping[str, Origin]) -> list[Fault]:
    """sbatch would work out the nodes from these; a supervisor must know how many there are."""
    if origins.get("slurm.nodes", _UNKNOWN).layer != "default":
        return []
    return [
        (f"slurm.{name}", (), "needs slurm.nodes beside it: a run has a fixed number of nodes")
        for name in ("ntasks", "nodelist", "nodefile")
        if name in settings.slurm
    ]


def _launch_rules(settings: Settings, _: Mapping[str, Origin]) -> list[Fault]:
    launch, launcher = settings.launch, settings.launcher
    if launch.by == CUSTOM and (fault := call_fault(launch.call)):
        return [("launch.call", ("launch.with",), fault)]
    if launch.by != CUSTOM and launch.call:
        return [("launch.call", ("launch.with",), f"needs launch.with: {CUSTOM}")]
    if not launcher.starts_ranks and launch.nproc_per_node is not None:
        text = f"has no meaning with launch.with: {launch.by}; use slurm.ntasks_per_node"
        return [("launch.nproc_per_node", ("launch.with",), text)]
    return [*_args_faults(launch, launcher), *_direct_faults(settings), *_warm_faults(settings)]


def _warm_faults(settings: Settings) -> list[Fault]:
    """Parked interpreters become ranks that a node starts itself; a step that waits gets its word as srun's input."""
    if settings.restart.warm == "false":
        return []
    faults: list[Fault] = []
    if not settings.launch.is_direct:
        faults.append(("restart.warm", ("launch.torchrun",), "needs launch.torchrun: direct"))
    if "MASTER_PORT" in settings.env:
        faults.append(("restart.warm", ("env",), "cannot be beside env: MASTER_PORT"))
    return faults


def _direct_faults(settings: Settings) -> list[Fault]:
    """What torchrun's agent can do, and a node that starts its ranks itself cannot."""
    launch = settings.launch
    if not launch.is_direct:
        return []
    if not settings.launcher.has_direct:
        return [("launch.torchrun", ("launch.with",), "direct needs launch.with: torchrun")]
    way = "is for torchrun's agent; leave it out, or launch.torchrun: agent"
    faults: list[Fault] = [("launch.args", ("launch.torchrun",), f"{word}: {way}") for word in launch.args[:1]]
    if launch.tee != 3:
        faults.append(("launch.tee", ("launch.torchrun",), f"other than 3 {way}"))
    if settings.container.runtime:
        faults.append(("launch.torchrun", ("container.runtime",), "direct does not start ranks in a container yet; use "
                       "agent"))
    return faults


def _args_faults(launch: LaunchPlan, launcher: Launcher) -> list[Fault]:
    if launch.args and not (launcher.owned or launcher.starts_ranks):
        text = f"has no meaning with launch.with: {launch.by}; options of srun: srun.extra"
        return [("launch.args", ("launch.with",), text)]
    return [("launch.args", ("launch.with",), f"{word}: safelaunch sets it; what may be set: docs/launchers.md")
            for word in launch.args if owned_flag(launcher, word)]


def _resume_rules(settings: Settings, origins: Mapping[str, Origin]) -> list[Fault]:
    resume = settings.resume
    # a site may well say how its checkpoints look, for runs that have any
    mine = ("file", "command line")
    quiet = {"format": "auto", "pattern": None, "args": ""}
    written = [key for key in quiet if getattr(resume, key) != quiet[key] and origins[f"resume.{key}"].layer in mine]
    faults: list[Fault] = []
    if settings.kill_switch.save_signal == settings.kill_switch.signal:
        faults.append(("kill_switch.save_signal", ("kill_switch.signal",), "must differ from kill_switch.signal, which "
                       "ends the training"))
    if resume.dir is None and written:
        faults.append((f"resume.{written[0]}", ("resume.dir",), "needs resume.dir: where the checkpoints are"))
    if resume.step is not None and resume.dir is None:
        faults.append(("resume.step", ("resume.dir",), "needs resume.dir: where the checkpoints are"))
    if resume.step is not None and resume.by == "training":
        faults.append(("resume.step", ("resume.by",), "needs resume.by: command; with training it finds the newest one "
                       "by itself: tell it the step in its own words"))
    if resume.format == "pattern" and resume.pattern is None:
        faults.append(("resume.format", ("resume.pattern",), "needs resume.pattern, such as step_{step}.pt"))
    if resume.format != "pattern" and resume.pattern is not None:
        faults.append(("resume.pattern", ("resume.format",), "needs resume.format: pattern"))
    if resume.dir is None and settings.slow.then == "restart" and origins["slow.then"].layer in mine:
        faults.append(("slow.then", ("resume.dir",), "restart needs resume.dir: the run stops at a checkpoint"))
    if resume.dir is None and settings.on_nan == "previous_checkpoint" and origins["on_nan"].layer in mine:
        faults.append(("on_nan", ("resume.dir",), "previous_checkpoint needs resume.dir: where the checkpoints are"))
    return faults


def _resize_rules(settings: Settings, origins: Mapping[str, Origin]) -> list[Fault]:
    """A site may well say how long to wait, for runs that can have fewer nodes."""
    least, step, nodes = settings.min_nodes, settings.nodes_multiple_of, settings.slurm.get("nodes")
    resume = settings.resume
    if least is None:
        # `config` prints the defaults, too, and what it prints is a train.yaml.
        usual_s = parse_duration_s(str(KEYS["restart.wait_for_nodes"].default))
        chosen = {"before_resize": settings.before_resize != "", "nodes_multiple_of": step != 1,
                  "restart.wait_for_nodes": settings.restart.wait_for_nodes_s != usual_s}
        return [(key, ("min_nodes",), "needs min_nodes: with how few nodes the run may go on")
                for key, is_chosen in chosen.items()
                if is_chosen and key in origins and origins[key].layer in ("file", "command line")]
    faults: list[Fault] = []
    if isinstance(nodes, int) and least >= nodes:
        faults.append(("min_nodes", ("slurm.nodes",), f"must be below slurm.nodes, which is {nodes}"))
    faults += [(key, ("nodes_multiple_of",), f"{count} is no multiple of {step} (nodes_multiple_of)")
               for key, count in (("min_nodes", least), ("slurm.nodes", nodes))
               if isinstance(count, int) and count % step]
    if settings.is_script:
        faults.append(("min_nodes", ("launch.with",), "has no meaning with a script, which counts its nodes itself"))
    if settings.before_resize and resume.dir is None:
        faults.append(("before_resize", ("resume.dir",), "needs resume.dir: where the checkpoints are"))
    if settings.before_resize and resume.by == "training":
        faults.append(("before_resize", ("resume.by",), "needs resume.by: command, because the training must load what "
                       "this has written"))
    return faults


def _container_rules(settings: Settings, _: Mapping[str, Origin]) -> list[Fault]:
    box, resume = settings.container, settings.resume.dir
    if not box.runtime:
        return [(f"container.{key}", ("container.runtime",), "needs container.runtime: what starts the container")
                for key in ("image", "workdir", "mounts", "env", "extra") if getattr(box, key)]
    needs = ("container.runtime",)
    if not box.image:
        return [("container.image", needs, "missing; it says what to run the command in")]
    faults: list[Fault] = []
    if settings.is_script:
        faults.append(("container.runtime", ("launch.with",), "has no meaning with a script; write it there"))
    if settings.cluster == "local" and RUNTIMES[box.runtime].is_plugin:
        faults.append(("container.runtime", ("cluster",), f"{box.runtime} is a plugin of srun, which this "
                       "machine has not"))
    if RUNTIMES[box.runtime].is_packed and "://" in box.image:
        faults.append(("container.image", needs, "enroot starts no image of a registry; make a file of it first: "
                       f"enroot import -o image.sqsh {box.image}"))
    for source, target, _options in map(split_mount, box.mounts):
        if resume and source != target and f"{resume}/".startswith(f"{target.rstrip('/')}/"):
            faults.append(("resume.dir", ("container.mounts",), f"inside it is {source} of the node; safelaunch looks "
                           f"for checkpoints outside, so mount it under its own name: {source}"))
    return faults


def _way_rules(settings: Settings) -> list[Fault]:
    """Weeks of GPU time went to trainings that were said to resume, and started from the beginning each time."""
    resume = settings.resume
    if resume.dir is None or resume.by == "training" or not settings.command.strip():
        return []
    args = resume.args
    fault = missing_way(settings.command, settings.setup, args)
    key = "resume.args" if args.strip() else "resume.dir"
    needs = ("command", "setup", "resume.by", "resume.args", "resume.dir")
    return [(key, needs, fault)] if fault is not None else []


def _with_paths(settings: Settings, environ: Mapping[str, str], base_dir: str) -> tuple[Settings, list[Fault]]:
    """`~/` becomes the home folder (a folder named "~" is never meant); run_dir becomes absolute if base_dir is."""
    faults: list[Fault] = []

    def whole(key: str, path: str, is_below: bool = False) -> str:
        if path == "~" or path.startswith("~/"):
            if not environ.get("HOME"):
                faults.append((key, (), "~ needs HOME in the environment"))
                return path
            path = environ["HOME"].rstrip("/") + path[1:]
        return f"{base_dir.rstrip('/')}/{path}" if is_below and base_dir and not path.startswith("/") else path

    resume, kill_switch, suspects = settings.resume, settings.kill_switch, settings.suspects
    settings = settings.with_(run_dir=whole("run_dir", settings.run_dir, is_below=True))
    if resume.dir is not None:
        settings = settings.with_(resume=resume._replace(dir=whole("resume.dir", resume.dir)))
    settings = settings.with_(kill_switch=kill_switch._replace(file=whole("kill_switch.file", kill_switch.file)))
    if suspects.ledger is not None:
        ledger = whole("suspects.ledger", suspects.ledger, is_below=True)
        settings = settings.with_(suspects=suspects._replace(ledger=ledger))
    return settings, faults + _path_faults(settings)


def _path_faults(settings: Settings) -> list[Fault]:
    """What the home folder and the folder of train.yaml have brought in; read_line has seen the rest."""
    paths = {"run_dir": settings.run_dir, "resume.dir": settings.resume.dir,
             "kill_switch.file": settings.kill_switch.file}
    found = [(key, unfit(path) or (unfit_for_output(path) if key == "run_dir" else None))
             for key, path in paths.items() if path is not None]
    return [(key, (), fault) for key, fault in found if fault is not None]
