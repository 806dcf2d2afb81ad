"""An sbatch script ▸ a train.yaml: converted where all of it may run on every node, else around the script as it is.

Whatever is left out, guessed or kept from being converted is said with the script's line. Nothing is guessed that
would change what runs: `launch.with: script` runs any script that Slurm would run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from safelaunch.base.yaml.yamlnodes import MappingNode, Scalar
from safelaunch.config.guessfolder import guess_folder
from safelaunch.config.resolve import ConfigLayer, resolve
from safelaunch.config.scripts.scripthints import script_hints
from safelaunch.config.scripts.scriptlayer import read_script
from safelaunch.config.shell.scriptlaunch import Numbers, Start, Unfit, read_launch, starts_training
from safelaunch.config.shell.scriptpath import is_script, why_no_script
from safelaunch.config.shell.scriptsetup import Place, assigned, kind_of, names_of
from safelaunch.config.shell.shelllines import Statement, Unclosed, split_statements
from safelaunch.config.starter import Draft, render_draft
from safelaunch.errors import ConfigError, Problem

# The first line: which shell, and its flags, `#!/usr/bin/env -S bash -el` included.
_SHEBANG = re.compile(r"#!\s*(?:\S*/env\s+(?:-S\s+)?)?(?:\S*/)?(\S+)((?:\s+-\S+)*)")
_NUMBER = re.compile(r"(?:export\s+)?(\w+)=[\"']?(?:\$\{?(?=SLURM_))?(\w{1,40})\}?[\"']?")
_END = re.compile(r"(?:exit(?:\s+[\w$?\"]+)?|wait(?:\s+[\w$!%\"]+)*|conda deactivate|deactivate)")
_REASONS_MAX = 8

Fault = tuple[int, str]   # line, why it may not run on every node


def draft_from_script(text: str, file: str, path: str = "", syntax_fault: str = "") -> Draft:
    """The draft of a train.yaml from which `path` leads to the script; raises ConfigError for one that cannot run.

    `syntax_fault` is what bash says of the text (config.io.bashtext).
    """
    return replace(_draft(text, file, path, syntax_fault), saves=guess_folder(text))


def _draft(text: str, file: str, path: str, syntax_fault: str) -> Draft:
    layer, problems, notes, _ = read_script(text, "file", file)
    problems += _syntax(text, file, syntax_fault)
    if problems:
        raise ConfigError(sorted(problems, key=lambda problem: problem.line))
    slurm, settled = _slurm(layer, file)
    options, shell, faults = _read_shebang(text.partition("\n")[0])
    if faults:
        return _wrap(text, file, path, slurm, faults, [], [*notes, *settled])
    try:
        statements = split_statements(text)
    except Unclosed as at:   # bash itself has found no fault
        return _wrap(text, file, path, slurm, [(at.number, "a text that is hard to read")], [], [*notes, *settled])
    hints = script_hints(text, file, {name.replace("_", "-"): value for name, value in slurm.items()})
    draft = _convert(file, layer, slurm, statements, options, [*notes, *settled])
    if isinstance(draft, Draft) and "sweep" in layer.entries:
        draft = [(layer.entries["sweep"].origin.line, "a job array, whose tasks are runs of the script as it is")]
    if isinstance(draft, Draft):
        draft = replace(draft, launch={**draft.launch, **shell})
    if isinstance(draft, Draft) and _passes(draft):
        return replace(draft, notes=[*draft.notes, *(hint for hint in hints if "secret" in hint)])
    faults = [] if isinstance(draft, Draft) else draft
    return _wrap(text, file, path, slurm, faults, hints, [*notes, *settled])


def _syntax(text: str, file: str, said: str) -> list[Problem]:
    """What neither sbatch nor bash would take."""
    if not is_script(text):
        return [Problem(file, 1, 1, "", why_no_script(text))]
    if not said:
        return []
    try:
        split_statements(text)
    except Unclosed as fault:
        return [Problem(file, fault.number, 1, "", f"{fault}: bash would not run the script")]
    found = re.search(r"line (\d+): (.*)", said)
    line, words = (int(found[1]), found[2]) if found else (1, said)
    return [Problem(file, line, 1, "", f"bash would not run the script: {words}")]


def _slurm(layer: MappingNode, file: str) -> tuple[dict[str, str | int | bool], list[str]]:
    """slurm: as train.yaml writes it, with one number of nodes; what had to be settled for that."""
    section = layer.entries["slurm"]
    assert isinstance(section, MappingNode)
    slurm = {name.replace("-", "_"): _yaml_value(node) for name, node in section.entries.items()
             if isinstance(node, Scalar)}
    written, ntasks = slurm.get("nodes"), slurm.get("ntasks")
    if isinstance(written, int) and written > 0:
        return slurm, []
    first = re.match(r"[1-9]\d*", str(written or ""))
    slurm["nodes"] = int(first[0]) if first else 1
    if first:
        line = section.entries["nodes"].origin.line
        return slurm, [f"{file}:{line}: nodes: {written} became {first[0]}: a run has a fixed number of nodes"]
    if ntasks is None:
        return slurm, []
    line = section.entries["ntasks"].origin.line
    return slurm, [f"{file}:{line}: nodes: 1 is a guess: --ntasks={ntasks} alone does not say on how many nodes; write "
                   "the number"]


def _yaml_value(node: Scalar) -> str | int | bool:
    if node.value is True:
        return True
    return int(node.text) if re.fullmatch(r"0|[1-9]\d{0,17}", node.text) else node.text


def _passes(draft: Draft) -> bool:
    try:
        resolve([ConfigLayer("file", "train.yaml", render_draft(draft))], [], {"HOME": "/"})
    except ConfigError:
        return False
    return True


def _convert(
    file: str, layer: MappingNode, slurm: dict[str, str | int | bool], statements: Sequence[Statement],
    options: list[str], notes: list[str],
) -> Draft | list[Fault]:
    """The draft, or each line for which the script must be kept as it is."""
    faults: list[Fault] = []
    kept, launches, dropped, lost = [], [], [], []
    for statement in statements:
        if starts_training(statement.text):
            launches.append(statement)
        elif not launches or not _END.fullmatch(statement.text):
            kind, why = kind_of(statement)
            if kind is None or (launches and kind is Place.KEEP):
                faults.append((statement.number, why or "it stands after the training"))
            elif kind is Place.KEEP:
                kept.append(statement)
            else:
                dropped.append((statement.number, kind))
                lost += [assigned(statement.text) or ""] if kind is Place.NODES else []
    made = _launch_of(launches, slurm, statements, faults)
    if made is not None:
        faults += _lost(lost, [*kept, Statement(launches[0].number, made.command)])
    if faults or made is None:
        return sorted(faults)
    notes = [*notes, *(f"{file}:{number}: left out: {kind.value}" for number, kind in dropped)]
    notes += [f"{file}:{launches[0].number}: {note}" for note in made.notes]
    if made.tasks_per_node and not {"ntasks", "ntasks_per_node"} & set(slurm):
        slurm = {**slurm, "ntasks_per_node": made.tasks_per_node}
    name, kill_switch = layer.entries["name"], layer.entries.get("kill_switch")
    assert isinstance(name, Scalar)
    setup = "\n".join([*options, *(statement.text for statement in kept)])
    signal = kill_switch.entries["signal"] if isinstance(kill_switch, MappingNode) else None
    return Draft(name.text, made.command, setup, slurm, made.launch, notes,
                 srun_extra=made.extra, kill_signal=signal.text if isinstance(signal, Scalar) else None)


def _launch_of(
    launches: list[Statement], slurm: dict[str, str | int | bool], statements: Sequence[Statement], faults: list[Fault],
) -> Start | None:
    """The one that starts the training; None, and why not, where there is no such one."""
    if not launches and not faults:
        faults.append((1, "no line of its own starts a training by srun, torchrun or python"))
    for statement in launches[1:]:
        faults.append((statement.number, "a second command that starts something"))
    if len(launches) != 1:
        return None
    statement, nodes = launches[0], slurm["nodes"]
    often = Counter(name for one in statements for name in names_of(one.text))
    numbers = {found[1]: found[2] for one in statements
               if (found := _NUMBER.fullmatch(one.text)) and often[found[1]] == 1}
    if statement.is_background or statement.has_here:
        faults.append((statement.number, "a command in the background" if statement.is_background else
                       "a here-document"))
        return None
    try:
        return read_launch(statement.text, Numbers(nodes if isinstance(nodes, int) else 1, slurm, numbers))
    except Unfit as why:
        faults.append((statement.number, str(why)))
        return None


def _lost(names: list[str], kept: list[Statement]) -> list[Fault]:
    """Uses of a variable that was to be left out."""
    return [(statement.number, f"{name} is made of the list of nodes, and is used here") for name in names
            for statement in kept if re.search(rf"\$\{{?{name}\b", statement.text)]


def _read_shebang(line: str) -> tuple[list[str], dict[str, bool], list[Fault]]:
    """`#!/bin/bash -le` as the line of setup that sets its options, the keys of launch: that it asks for, and what of
    it cannot be kept.
    """
    match = _SHEBANG.match(line)
    if match is None or match[1] not in ("bash", "sh", "dash"):
        return [], {}, [(1, f"written for {match[1] if match else 'another program'}, not for bash")]
    flags = match[2].split()
    letters = "".join(flag[1:] for flag in flags if not flag.startswith("--"))
    options = "".join(letter for letter in dict.fromkeys(letters) if letter in "efux")
    left_out = [flag for flag in flags if flag != "--login" and set(flag[1:]) - set("lefux")]
    faults = [(1, f"flags of {match[1]}: {' '.join(left_out)}")] if left_out else []
    is_login = "l" in letters or "--login" in flags
    return [f"set -{options}"] if options else [], {"login_shell": True} if is_login else {}, faults


def _wrap(
    text: str, file: str, path: str, slurm: dict[str, str | int | bool], faults: list[Fault], hints: list[str],
    notes: list[str],
) -> Draft:
    """A train.yaml around the script; raises ConfigError where even that does not pass."""
    first = dict(reversed(faults))
    reasons = [f"{file}:{number}: not converted: {first[number]}" for number in sorted(first)[:_REASONS_MAX]]
    if len(first) > _REASONS_MAX:
        reasons.append(f"{file}: {len(first) - _REASONS_MAX} more lines are not converted")
    nodes: dict[str, str | int | bool] = {"nodes": slurm["nodes"]} if any("nodes: " in note for note in notes) else {}
    said = "the script runs as it is, once on the first node, as under sbatch (launch.with: script, docs/scripts.md)"
    draft = Draft(None, "", "", nodes, {}, [said, *reasons, *notes, *hints], script=path or file)
    layers = [ConfigLayer("file", file, text), ConfigLayer("file", "train.yaml", render_draft(draft))]
    resolve(layers, [], {"HOME": "/"})
    return draft
