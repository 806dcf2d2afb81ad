"""A user's own sbatch script as a layer of the config: its options as slurm:, the whole of it as command:.

Options stand in three places, each of which counts more than the one before: the script's lines (#SBATCH, then #PBS or
#BSUB), the environment (sbatchvariables), the command line. Each is a layer of its own: train.yaml may name the script.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from safelaunch.base.yaml.yamlnodes import MappingNode, Node, Origin, Scalar, plain, quoted
from safelaunch.config.kinds.kinds import SignalName
from safelaunch.config.layers import name_from_file
from safelaunch.config.scripts.sbatchlines import read_sbatch_lines
from safelaunch.config.scripts.scriptarrays import read_array
from safelaunch.config.scripts.scriptrefusals import find_refusals, find_submissions
from safelaunch.config.scripts.scriptwarnings import find_warnings
from safelaunch.config.scripts.slurmkeys import UNKNOWN, key_of, literal, node_of, split_flags
from safelaunch.config.scripts.wrapperlines import read_wrapper_lines
from safelaunch.config.shell.scriptpath import STDIN
from safelaunch.errors import Problem
from safelaunch.launch.settings import OwnScript
from safelaunch.slurm.nodeset import expand_own
from safelaunch.slurm.outputname import default_pattern, lines_that_name, what_a_link_meets
from safelaunch.slurm.sbatchoptions import OPTIONS, GivenOption, why_refused

# What of a script's options safelaunch does itself: no reason to refuse it, but said.
_RESTART = "safelaunch restarts the run itself"
_TALK = "safelaunch says what it does, and the job's id"
LEFT_OUT: dict[str, str] = {
    "requeue": _RESTART, "no-requeue": _RESTART,
    "no-kill": "safelaunch sets it always",
    "signal": "before the time limit safelaunch sends kill_switch.signal to the training's processes that handle it",
    "get-user-env": "the environment of the submission is kept",
    "kill-on-invalid-dep": "safelaunch sets it for the jobs of a run",
    "parsable": _TALK, "quiet": _TALK, "verbose": _TALK,
    "wrap": "sbatch does not read it in a script, either",
    "ignore-pbs": "no #PBS or #BSUB line is read",
}
_OWN_LOG = ("the script's own output: a file that only you can read, and where a line of the script itself stands some "
            "20 ms later: put sleep 1 before a command that reads it (what srun prints stands there when it returns)")
OWN = frozenset(("job-name", "output", "error", "open-mode", "signal"))   # kept as written: OwnScript
_OURS = frozenset((*LEFT_OUT, *OWN, "export", "array"))
# What to write instead in a script, where it is not what to write in train.yaml.
_REFUSED = {
    "input": "the script's standard input is empty; write `< FILE` behind the command in the script that reads it",
    "wait": "leave it out, and type: safelaunch submit --wait FILE",
    "test-only": "leave it out, and type: safelaunch submit --dry-run FILE",
    "export": "the script would not see the environment of the submission, which safelaunch keeps for every job of the "
              "run. To keep it here, too, type behind the file: -- --export=ALL   (a variable: env.NAME=VALUE)",
    "export-file": "leave it out; variables are set behind the file: env.NAME=VALUE",
}
RESTARTS = ("after a failure your script is started again: it must load its newest checkpoint itself, or read "
            "$SAFELAUNCH_RESUME_PATH (see resume.dir in docs/scripts.md; without it, some crashes in a row without a "
            "further step end the run)")
_SIGNAL = re.compile(r"(?:[RB]:)?(?:SIG)?([A-Z]+[12]?|\d+)(?:@\d+)?\Z", re.IGNORECASE)
_NUMBERS = {"1": "HUP", "2": "INT", "10": "USR1", "12": "USR2", "15": "TERM"}   # signal(7)
_TO_SHELL = ("becomes kill_switch.signal: before the time limit, and when the run is stopped, it is sent to the "
             "script's own shell, whose trap is called")


class ReadScript(NamedTuple):
    """A script's layer; every problem in it with its line; what is to be said of its options; and what it has asked of
    its own job that no key of train.yaml holds: fields of OwnScript.
    """

    layer: MappingNode
    problems: list[Problem]
    notes: list[str]
    own: dict[str, str]


def read_script(text: str, layer: str, file: str, later: Iterable[GivenOption] = ()) -> ReadScript:
    """What a script is as a config. `later`: options that count more than the script's own."""
    problems = find_refusals(text, file)
    if "\r\n" in text:
        problems.append(Problem(file, 1, 1, "", "its lines end as DOS ends them, and sbatch refuses that: dos2unix it"))
    place = Origin(layer, file, 1, 1)
    # sbatch's own name for a job without a file
    own = {"path": file, "job_name": file.rpartition("/")[2]} if file != STDIN else {"path": "", "job_name": "sbatch"}
    entries: dict[str, Node] = {"command": quoted(text, place),
                                "launch": MappingNode({"with": plain("script", place)}, place),
                                "resume": MappingNode({"by": plain("training", place)}, place),
                                "name": quoted(_name(file), place)}
    later_names = frozenset(one.name for one in later)
    lines = list(_options(text, layer, file))
    notes = [*find_submissions(text, file), *find_warnings(text, file)]
    if not {"ignore-pbs"} & {*later_names, *(one.name for one in lines)}:
        wrapped = read_wrapper_lines(text, layer, file)
        lines, notes = [*lines, *wrapped.options], [*notes, *wrapped.notes]
    taken = take_options(lines, text, later_names)
    slurm = taken.layer.entries["slurm"]
    assert isinstance(slurm, MappingNode)
    entries |= taken.layer.entries
    entries["slurm"] = slurm._replace(entries=_with_nodes(slurm.entries))
    tree = MappingNode(entries, place, {key: node.origin for key, node in entries.items()})
    own |= taken.own
    patterns = [own.get("output") or default_pattern("array" in slurm.entries), own.get("error", "")]
    named = lines_that_name(text, filter(None, patterns))
    notes += [f"{file}:{number}: {_OWN_LOG}" for number, _ in named[:1]]
    notes += [f"{file}:{number}: {met}" for number, line in named if (met := what_a_link_meets(line))]
    return ReadScript(tree, [*problems, *taken.problems], [*taken.notes, *notes], own)


def _signal_name(value: str) -> str:
    """The signal of sbatch's --signal, if kill_switch.signal can be that one."""
    found = _SIGNAL.match(value)
    name = "" if found is None else f"SIG{_NUMBERS.get(found[1], found[1].upper())}"
    return name if name in SignalName.names else ""


def take_options(given: Iterable[GivenOption], text: str, later: frozenset[str] = frozenset()) -> ReadScript:
    """What options of a script become, wherever they stand, as `text` is the script's. Those of safelaunch's own are
    not looked at where they are given once more later.
    """
    entries: dict[str, Node] = {}
    slurm: dict[str, Node] = {}
    problems: list[Problem] = []
    notes: list[str] = []
    own: dict[str, str] = {}
    for one in given:
        if one.name in later and (one.name in _OURS or why_refused(one.name)):
            continue
        if one.name in OWN:
            own[one.name.replace("-", "_")] = one.value or ""
        try:
            more, said = _take(one, text)
        except ValueError as unfit:
            problems.append(Problem(one.place.file, one.place.line, one.place.column, one.name or one.shown,
                                    str(unfit)))
            continue
        entries |= {key: node for key, node in more.items() if key != "env"}
        if "env" in more:
            entries["env"] = _merged(entries.get("env"), more["env"])
        notes += [f"{_where(one)}{said}"] if said else []
        if not more and one.name not in _OURS and one.name != "input":
            slurm[key_of(one.name)] = node_of(one.value, one.place)
    place = Origin("", "", 0, 0)
    places = {name: node.origin for name, node in slurm.items()}
    entries["slurm"] = MappingNode(slurm, place, places)
    return ReadScript(MappingNode(entries, place, {key: node.origin for key, node in entries.items()}), problems, notes,
                      own)


def _take(one: GivenOption, text: str) -> tuple[dict[str, Node], str]:
    """The keys that an option becomes, {} where it stays one of slurm:, and what is to be said; raises ValueError for
    one that is refused.
    """
    value, here = one.value or "", one.place
    if one.fault:
        raise ValueError(one.fault)
    if one.name == "job-name":
        return {"name": quoted(_name(value), here)}, ""
    if one.name == "error":
        return {}, (f"--error={value}: that file and the one of --output are links to one log, which has the lines of "
                    "stdout and of stderr")
    if one.name in ("output", "open-mode"):
        return {}, ""   # a link to the log of the newest attempt (node/script.sh)
    if one.name == "export":
        return _read_export(value, here)
    if one.name == "array":
        more, said = read_array(value, text, here)
        return more, said
    if one.name in LEFT_OUT:
        name = _signal_name(value) if one.name == "signal" else ""
        is_for_shell = bool(name) and OwnScript(signal=value).traps_signal(text)
        said = _TO_SHELL if is_for_shell else f"is left out: {LEFT_OUT[one.name]}"
        signal = {"kill_switch": MappingNode({"signal": quoted(name, here)}, here)} if name else {}
        return {**signal}, f"{one.shown} {said}"
    if one.name == "input" and value == "/dev/null":
        return {}, ""
    if refusal := _REFUSED.get(one.name) or why_refused(one.name):
        raise ValueError(refusal)
    if one.name not in OPTIONS:
        return {}, UNKNOWN.format(one.shown)
    return {}, ""


def _read_export(value: str, here: Origin) -> tuple[dict[str, Node], str]:
    """`ALL,A=1,B`: all variables of the submission, and A."""
    parts = (value or "ALL").split(",")
    if "ALL" not in parts or '"' in value or "'" in value:
        raise ValueError(_REFUSED["export"])
    sets = dict(part.partition("=")[::2] for part in parts if "=" in part)
    if not sets:
        return {}, ""
    env = MappingNode({name: literal(text, here) for name, text in sets.items()}, here)
    return {"env": env}, f"--export={value} sets env.{', env.'.join(sets)}"


def _merged(below: Node | None, above: Node) -> Node:
    if isinstance(below, MappingNode) and isinstance(above, MappingNode):
        return above._replace(entries={**below.entries, **above.entries})
    return above


def _where(one: GivenOption) -> str:
    return f"{one.place.file}:{one.place.line}: " if one.place.line else ""


def _options(text: str, layer: str, file: str) -> Iterator[GivenOption]:
    """Those of the #SBATCH lines."""
    for line in read_sbatch_lines(text):
        place = Origin(layer, file, line.number, 1)
        if line.words[:1] in (("hetjob",), ("packjob",)):
            continue   # refused already
        if line.fault:
            yield GivenOption(place, "#SBATCH", "", None, line.fault)
        flags, faults = split_flags(line.words)
        for flag, fault in faults:
            yield GivenOption(place, flag, "", None, fault)
        for name, value in flags:
            yield GivenOption(place, f"--{name}", name, value)


def _with_nodes(slurm: Mapping[str, Node]) -> Mapping[str, Node]:
    """With the number of nodes where the tasks give it (one task has one node, and tasks a node divide them), the GPUs,
    or a list of nodes, as under sbatch (opt.c of Slurm 22.05).
    """
    ntasks, per_node, gpus, gpus_each = (_number(slurm.get(name)) for name in (
        "ntasks", "ntasks-per-node", "gpus", "gpus-per-node"))
    if "nodes" not in slurm and gpus and gpus_each and gpus % gpus_each == 0:
        return {**slurm, "nodes": quoted(str(gpus // gpus_each), slurm["gpus"].origin)}
    if "nodes" not in slurm and ntasks and (per_node or ntasks == 1):
        return {**slurm, "nodes": quoted(str(-(-ntasks // (per_node or 1))), slurm["ntasks"].origin)}
    if "nodes" not in slurm and isinstance(listed := slurm.get("nodelist"), Scalar):
        names = set(expand_own(listed.text)) if "@" not in listed.text else set()
        if names and (not ntasks or ntasks >= len(names)):
            return {**slurm, "nodes": quoted(str(len(names)), listed.origin)}
    return slurm


def _number(node: Node | None) -> int:
    count = node.text.rpartition(":")[2] if isinstance(node, Scalar) else ""   # a100:4
    return int(count) if count.isdigit() else 0


def _name(text: str) -> str:
    """A run's name from a job's, or from the script's file."""
    return name_from_file(re.sub(r"\.(?:slurm|sbatch|sh|bash|job)\Z", "", text))
