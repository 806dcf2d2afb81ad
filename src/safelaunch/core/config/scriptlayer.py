"""A user's own sbatch script as a layer of the config: its #SBATCH lines as slurm:, the whole of it as command:."""

from __future__ import annotations

import re
from collections.abc import Iterator

from safelaunch.core.config.kinds import SignalName
from safelaunch.core.config.layers import name_from_file
from safelaunch.core.config.sbatchlines import read_sbatch_lines
from safelaunch.core.config.sbatchoptions import REFUSED
from safelaunch.core.config.scriptarrays import read_array
from safelaunch.core.config.scriptrefusals import find_refusals
from safelaunch.core.config.slurmkeys import split_flags
from safelaunch.core.config.yamlnodes import MappingNode, Node, Origin, Scalar, plain, quoted
from safelaunch.core.ownscript import OwnScript
from safelaunch.core.records import NamedTuple
from safelaunch.errors import Problem

# What of the script safelaunch does itself: no reason to refuse it, but said.
_LOG = "the log of each attempt is kept in the run folder: safelaunch logs"
_RESTART = "safelaunch restarts the run itself"
LEFT_OUT: dict[str, str] = {
    "output": _LOG, "error": _LOG, "open-mode": _LOG, "requeue": _RESTART, "no-requeue": _RESTART,
    "no-kill": "safelaunch sets it always",
    "signal": "before the time limit safelaunch sends kill_switch.signal to the training's processes that handle it",
    "get-user-env": "the environment of the submission is kept",
    "parsable": "safelaunch says the job's id", "quiet": "safelaunch says what it does",
    "verbose": "safelaunch says what it does",
}
OWN = frozenset(("job-name", "output", "error", "open-mode", "signal"))   # kept as written: core.plan.OwnScript
RESTARTS = ("after a failure your script is started again: it must load its newest checkpoint itself, or read "
            "$SAFELAUNCH_RESUME_PATH (see resume.dir in docs/scripts.md)")
_SIGNAL = re.compile(r"(?:[RB]:)?(?:SIG)?([A-Z]+[12]?|\d+)(?:@\d+)?\Z", re.IGNORECASE)
_NUMBERS = {"1": "HUP", "2": "INT", "10": "USR1", "12": "USR2", "15": "TERM"}   # signal(7)
_TO_SHELL = ("becomes kill_switch.signal: before the time limit, and when the run is stopped, it is sent to the "
             "script's own shell, whose trap is called")


class ReadScript(NamedTuple):
    """A script's layer; every problem in it with its line; what is to be said of its options; and what it has asked of
    its own job that no key of train.yaml holds: fields of core.plan.OwnScript.
    """

    layer: MappingNode
    problems: list[Problem]
    notes: list[str]
    own: dict[str, str]


def read_script(text: str, layer: str, file: str) -> ReadScript:
    """What a script is as a config."""
    problems = find_refusals(text, file)
    if "\r\n" in text:
        problems.append(Problem(file, 1, 1, "", "its lines end as DOS ends them, and sbatch refuses that: dos2unix it"))
    place = Origin(layer, file, 1, 1)
    entries: dict[str, Node] = {"command": quoted(text, place),
                                "launch": MappingNode({"with": plain("script", place)}, place),
                                "resume": MappingNode({"by": plain("training", place)}, place),
                                "name": quoted(_name(file), place)}
    slurm: dict[str, Node] = {}
    notes: list[str] = []
    own = {"path": file, "job_name": file.rpartition("/")[2]}
    for number, option, value, fault in _options(text):
        here = Origin(layer, file, number, 1)
        if option in OWN:
            own[option.replace("-", "_")] = value or ""
        if fault:
            problems.append(Problem(file, number, 1, option, fault))
        elif option == "job-name":
            entries["name"] = quoted(_name(value or ""), here)
        elif option == "export" and value == "ALL":
            pass   # what safelaunch does anyhow
        elif option == "array":
            try:
                more, said = read_array(value or "", text, here)
            except ValueError as unfit:
                problems.append(Problem(file, number, 1, option, str(unfit)))
            else:
                entries |= more
                notes.append(f"{file}:{number}: {said}")
        elif option in LEFT_OUT:
            said = f"is left out: {LEFT_OUT[option]}"
            if option == "signal" and (name := _signal_name(value or "")):
                entries["kill_switch"] = MappingNode({"signal": quoted(name, here)}, here)
                said = _TO_SHELL if OwnScript(signal=value).traps_signal(text) else said
            notes.append(f"{file}:{number}: --{option} {said}")
        else:
            slurm[option] = Scalar(True, "true", True, here) if value is None else quoted(value, here)
    entries["slurm"] = MappingNode(_with_nodes(slurm), place, {name: node.origin for name, node in slurm.items()})
    tree = MappingNode(entries, place, {key: node.origin for key, node in entries.items()})
    return ReadScript(tree, problems, notes, own)


def _signal_name(value: str) -> str:
    """The signal of sbatch's --signal, if kill_switch.signal can be that one."""
    found = _SIGNAL.match(value)
    name = "" if found is None else f"SIG{_NUMBERS.get(found[1], found[1].upper())}"
    return name if name in SignalName.names else ""


def _options(text: str) -> Iterator[tuple[int, str, str | None, str]]:
    """(line, long name, value, what is wrong with it) of each option in the #SBATCH lines."""
    for line in read_sbatch_lines(text):
        if line.words[:1] in (("hetjob",), ("packjob",)):
            continue   # refused already
        if line.fault:
            yield line.number, "#SBATCH", None, line.fault
        flags, faults = split_flags(line.words)
        for flag, fault in faults:
            yield line.number, flag, None, fault
        for option, value in flags:
            is_ours = option in LEFT_OUT or option in ("job-name", "export", "array")
            refused = "" if is_ours and not (option == "export" and value != "ALL") else REFUSED.get(option, "")
            yield line.number, option, value, refused


def _with_nodes(slurm: dict[str, Node]) -> dict[str, Node]:
    """With the number of nodes where the tasks alone give it: one task has one node, and tasks a node divide them."""
    ntasks, per_node = (_number(slurm.get(name)) for name in ("ntasks", "ntasks-per-node"))
    if "nodes" not in slurm and ntasks and (per_node or ntasks == 1):
        return {**slurm, "nodes": quoted(str(-(-ntasks // (per_node or 1))), slurm["ntasks"].origin)}
    return slurm


def _number(node: Node | None) -> int:
    return int(node.text) if isinstance(node, Scalar) and node.text.isdigit() else 0


def _name(text: str) -> str:
    """A run's name from a job's, or from the script's file."""
    return name_from_file(re.sub(r"\.(?:slurm|sbatch|sh|bash|job)\Z", "", text))
