"""What one key alone cannot say: defaults that follow from other keys, and keys that need or exclude each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from safelaunch.base.yaml.yamlnodes import Origin
from safelaunch.config.handed import unfit, unfit_for_output
from safelaunch.config.keys import KEYS
from safelaunch.config.kinds.pluginnames import look_up
from safelaunch.config.resumeway import missing_way
from safelaunch.config.values import parse_duration_s
from safelaunch.errors import Problem
from safelaunch.launch.containers import RUNTIMES, split_mount
from safelaunch.launch.jobnumbers import number_faults
from safelaunch.launch.launchers import (
    CUSTOM,
    LAUNCHERS,
    Launcher,
    call_fault,
    default_launcher,
    direct_faults,
    owned_flag,
)
from safelaunch.slurm.gpus import gpus_per_node

if TYPE_CHECKING:
    from safelaunch.extensions.pluginvalues import FindPlugin

_UNKNOWN = Origin("default", "", 0, 0)


class Values(Protocol):
    """The values read so far, and where each came from."""

    config: dict[str, Any]
    origins: dict[str, Origin]


def complete(
    values: Values,
    *,
    environ: Mapping[str, str],
    base_dir: str,
    file: str,
    faulty: frozenset[str],
    find_plugin: FindPlugin,
) -> list[Problem]:
    """Fill in what follows from other keys, in place; the problems between keys, unless a key has one already."""
    config, origins = values.config, values.origins
    rules = (_command_rules, _slurm_rules, _launch_rules, _resume_rules, _container_rules, _resize_rules, _sweep_rules)
    found: list[Fault] = look_up(config, find_plugin)
    found += [fault for rule in rules for fault in rule(config, origins)]
    found += _paths(config, environ, base_dir) + _way_rules(config) + number_faults(config)
    problems = []
    for key, needs, text in found:
        if not faulty.isdisjoint((key, *needs)):
            continue
        place = next((origins[one] for one in (key, *needs) if one in origins and origins[one].line), _UNKNOWN)
        if place is _UNKNOWN and (origin := origins.get(key)) is not None and origin.layer == "command line":
            place = origin
        problems.append(Problem(place.file or file, place.line, place.column, key, text))
    return problems


# (the key, other keys it depends on, what is wrong)
Fault = tuple[str, tuple[str, ...], str]


def _command_rules(config: dict[str, Any], origins: Mapping[str, Origin]) -> list[Fault]:
    command = config.get("command")
    if config["script"] is not None and (found := _script_rules(config, origins)):
        return found
    if command is None:
        return [("command", (), "missing; it says what to train with, such as command: python train.py")]
    if not command.strip():
        return [("command", (), "empty; it says what to train with")]
    if config["launch"]["with"] != "script":   # a script's text lies in a file; a command is given to a process
        if fault := unfit(command):
            return [("command", ("launch.with",), fault)]
        return [("args", ("launch.with",), "are those of a script; write them into command:")] if config["args"] else []
    faults: list[Fault] = []
    if not command.startswith("#!"):
        faults.append(("command", ("launch.with",), "with launch.with: script it is the text of an sbatch script, "
                       "which begins with #!/bin/bash; a script in a file: safelaunch submit job.slurm"))
    if (config["setup"] or "").strip():
        faults.append(("setup", ("launch.with",), "has no meaning with launch.with: script; write it into the script"))
    return faults


def _script_rules(config: dict[str, Any], origins: Mapping[str, Origin]) -> list[Fault]:
    """The script's own text stands in a layer below train.yaml (scriptlayer.script_path)."""
    command, here = config.get("command"), origins["script"]
    if command is None or here.layer != "file":
        return [("script", (), "is read where it stands in train.yaml only; without one: safelaunch submit job.slurm")]
    if origins["command"].file == here.file or origins["command"].layer != "file":
        return [("command", ("script",), "script: is there, too; one of them says what to train with")]
    if config["launch"]["with"] != "script":
        return [("launch.with", ("script",), "script: runs as it is; leave this key out")]
    return []


def _sweep_rules(config: dict[str, Any], origins: Mapping[str, Origin]) -> list[Fault]:
    mine = origins["max_parallel"].layer in ("file", "command line")   # a site may well limit all sweeps
    if config["sweep"] is None and config["max_parallel"] is not None and mine:
        return [("max_parallel", ("sweep",), "needs sweep: what the runs differ in")]
    return []


def _slurm_rules(config: dict[str, Any], origins: Mapping[str, Origin]) -> list[Fault]:
    """sbatch would work out the nodes from these; a supervisor must know how many there are."""
    if origins.get("slurm.nodes", _UNKNOWN).layer != "default":
        return []
    return [
        (f"slurm.{name}", (), "needs slurm.nodes beside it: a run has a fixed number of nodes")
        for name in ("ntasks", "nodelist", "nodefile")
        if name in config["slurm"]
    ]


def _launch_rules(config: dict[str, Any], origins: Mapping[str, Origin]) -> list[Fault]:
    launch, slurm = config["launch"], config["slurm"]
    gpus = gpus_per_node(slurm)
    wide = gpus > 0 or slurm.get("nodes", 1) != 1 or "gpus-per-task" in slurm or slurm.get("ntasks", 1) != 1
    if launch["with"] is None:
        launch["with"] = default_launcher(launch["nproc_per_node"] is not None, wide)
    launcher = LAUNCHERS[launch["with"]]
    if launch["with"] == CUSTOM and (fault := call_fault(launch["call"] or ())):
        return [("launch.call", ("launch.with",), fault)]
    if launch["with"] != CUSTOM and launch["call"]:
        return [("launch.call", ("launch.with",), f"needs launch.with: {CUSTOM}")]
    if launcher.is_script:   # to its sruns nothing is added that nobody has asked for
        for key in ("wait", "kill_on_bad_exit"):
            if origins.get(f"srun.{key}", _UNKNOWN).layer == "default":
                config["srun"][key] = None
    if launcher.notice and origins.get("kill_switch.signal", _UNKNOWN).layer == "default":
        config["kill_switch"]["signal"] = launcher.notice
    if launcher.starts_ranks and launch["nproc_per_node"] is None:
        launch["nproc_per_node"] = gpus or 1
    elif not launcher.starts_ranks and launch["nproc_per_node"] is not None:
        text = f"has no meaning with launch.with: {launch['with']}; use slurm.ntasks_per_node"
        return [("launch.nproc_per_node", ("launch.with",), text)]
    return [*_args_faults(launch, launcher), *direct_faults(launch, config["container"]["runtime"] is not None)]


def _args_faults(launch: Mapping[str, Any], launcher: Launcher) -> list[Fault]:
    words = launch["args"] or ()   # None: it has a mistake of its own
    if words and not (launcher.owned or launcher.starts_ranks):
        text = f"has no meaning with launch.with: {launch['with']}; options of srun: srun.extra"
        return [("launch.args", ("launch.with",), text)]
    return [("launch.args", ("launch.with",), f"{word}: safelaunch sets it; what may be set: docs/launchers.md")
            for word in words if owned_flag(launcher, word)]


def _resume_rules(config: dict[str, Any], origins: Mapping[str, Origin]) -> list[Fault]:
    resume = config["resume"]
    # a site may well say how its checkpoints look, for runs that have any
    mine = ("file", "command line")
    quiet = {"format": "auto", "pattern": None, "args": ""}
    written = [key for key in quiet if resume[key] != quiet[key] and origins[f"resume.{key}"].layer in mine]
    faults: list[Fault] = []
    kill_switch = config["kill_switch"]
    if kill_switch["save_signal"] is not None and kill_switch["save_signal"] == kill_switch["signal"]:
        faults.append(("kill_switch.save_signal", ("kill_switch.signal",), "must differ from kill_switch.signal, which "
                       "ends the training"))
    if resume["dir"] is None and written:
        faults.append((f"resume.{written[0]}", ("resume.dir",), "needs resume.dir: where the checkpoints are"))
    if resume["step"] is not None and resume["dir"] is None:
        faults.append(("resume.step", ("resume.dir",), "needs resume.dir: where the checkpoints are"))
    if resume["step"] is not None and resume["by"] == "training":
        faults.append(("resume.step", ("resume.by",), "needs resume.by: command; with training it finds the newest one "
                       "by itself: tell it the step in its own words"))
    if resume["format"] == "pattern" and resume["pattern"] is None:
        faults.append(("resume.format", ("resume.pattern",), "needs resume.pattern, such as step_{step}.pt"))
    if resume["format"] != "pattern" and resume["pattern"] is not None:
        faults.append(("resume.pattern", ("resume.format",), "needs resume.format: pattern"))
    if resume["dir"] is None and config["slow"]["then"] == "restart" and origins["slow.then"].layer in mine:
        faults.append(("slow.then", ("resume.dir",), "restart needs resume.dir: the run stops at a checkpoint"))
    if resume["dir"] is None and config["on_nan"] == "previous_checkpoint" and origins["on_nan"].layer in mine:
        faults.append(("on_nan", ("resume.dir",), "previous_checkpoint needs resume.dir: where the checkpoints are"))
    return faults


def _resize_rules(config: dict[str, Any], origins: Mapping[str, Origin]) -> list[Fault]:
    """A site may well say how long to wait, for runs that can have fewer nodes."""
    least, step, nodes = config["min_nodes"], config["nodes_multiple_of"], config["slurm"].get("nodes")
    resume = config["resume"]
    if least is None:
        # `config` prints the defaults, too, and what it prints is a train.yaml.
        usual_s = parse_duration_s(str(KEYS["restart.wait_for_nodes"].default))
        chosen = {"before_resize": config["before_resize"] is not None, "nodes_multiple_of": step != 1,
                  "restart.wait_for_nodes": config["restart"]["wait_for_nodes"] != usual_s}
        return [(key, ("min_nodes",), "needs min_nodes: with how few nodes the run may go on")
                for key, is_chosen in chosen.items()
                if is_chosen and key in origins and origins[key].layer in ("file", "command line")]
    faults: list[Fault] = []
    if isinstance(nodes, int) and least >= nodes:
        faults.append(("min_nodes", ("slurm.nodes",), f"must be below slurm.nodes, which is {nodes}"))
    faults += [(key, ("nodes_multiple_of",), f"{count} is no multiple of {step} (nodes_multiple_of)")
               for key, count in (("min_nodes", least), ("slurm.nodes", nodes))
               if isinstance(count, int) and count % step]
    if LAUNCHERS[config["launch"]["with"] or "none"].is_script:
        faults.append(("min_nodes", ("launch.with",), "has no meaning with a script, which counts its nodes itself"))
    if config["before_resize"] is not None and resume["dir"] is None:
        faults.append(("before_resize", ("resume.dir",), "needs resume.dir: where the checkpoints are"))
    if config["before_resize"] is not None and resume["by"] == "training":
        faults.append(("before_resize", ("resume.by",), "needs resume.by: command, because the training must load what "
                       "this has written"))
    return faults


def _container_rules(config: dict[str, Any], _: Mapping[str, Origin]) -> list[Fault]:
    box, resume = config["container"], config["resume"]["dir"]
    if box["runtime"] is None:
        return [(f"container.{key}", ("container.runtime",), "needs container.runtime: what starts the container")
                for key in ("image", "workdir", "mounts", "env", "extra") if box[key]]
    needs = ("container.runtime",)
    if box["image"] is None:
        return [("container.image", needs, "missing; it says what to run the command in")]
    faults: list[Fault] = []
    if LAUNCHERS[config["launch"]["with"] or "none"].is_script:
        faults.append(("container.runtime", ("launch.with",), "has no meaning with a script; write it there"))
    if config["cluster"] == "local" and RUNTIMES[box["runtime"]].is_plugin:
        faults.append(("container.runtime", ("cluster",), f"{box['runtime']} is a plugin of srun, which this "
                       "machine has not"))
    if RUNTIMES[box["runtime"]].is_packed and "://" in box["image"]:
        faults.append(("container.image", needs, "enroot starts no image of a registry; make a file of it first: "
                       f"enroot import -o image.sqsh {box['image']}"))
    for source, target, _options in map(split_mount, box["mounts"] or ()):
        if resume and source != target and f"{resume}/".startswith(f"{target.rstrip('/')}/"):
            faults.append(("resume.dir", ("container.mounts",), f"inside it is {source} of the node; safelaunch looks "
                           f"for checkpoints outside, so mount it under its own name: {source}"))
    return faults


def _way_rules(config: dict[str, Any]) -> list[Fault]:
    """Weeks of GPU time went to trainings that were said to resume, and started from the beginning each time."""
    resume = config["resume"]
    if resume["dir"] is None or resume["by"] == "training" or not (config.get("command") or "").strip():
        return []
    args = resume["args"] or ""
    fault = missing_way(config["command"], config["setup"] or "", args)
    key = "resume.args" if args.strip() else "resume.dir"
    needs = ("command", "setup", "resume.by", "resume.args", "resume.dir")
    return [(key, needs, fault)] if fault is not None else []


def _paths(config: dict[str, Any], environ: Mapping[str, str], base_dir: str) -> list[Fault]:
    """`~/` becomes the home folder (a folder named "~" is never meant); run_dir becomes absolute if base_dir is."""
    faults: list[Fault] = []
    for key in ("run_dir", "resume.dir", "kill_switch.file", "suspects.ledger"):
        section, _, leaf = key.rpartition(".")
        holder = config[section] if section else config
        path = holder[leaf]
        if path is not None and (path == "~" or path.startswith("~/")):
            if environ.get("HOME"):
                holder[leaf] = environ["HOME"].rstrip("/") + path[1:]
            else:
                faults.append((key, (), "~ needs HOME in the environment"))
    for holder, leaf in ((config, "run_dir"), (config["suspects"], "ledger")):
        path = holder[leaf]
        if path is not None and base_dir and not path.startswith(("/", "~")):
            holder[leaf] = f"{base_dir.rstrip('/')}/{path}"
    return faults + _path_faults(config)


def _path_faults(config: Mapping[str, Any]) -> list[Fault]:
    """What the home folder and the folder of train.yaml have brought in; read_line has seen the rest."""
    paths = {"run_dir": config["run_dir"], "resume.dir": config["resume"]["dir"],
             "kill_switch.file": config["kill_switch"]["file"]}
    found = [(key, unfit(path) or (unfit_for_output(path) if key == "run_dir" else None))
             for key, path in paths.items() if path is not None]
    return [(key, (), fault) for key, fault in found if fault is not None]
