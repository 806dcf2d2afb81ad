"""Values ▸ the text of a train.yaml that a person can go on writing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from safelaunch.base.yaml.yamlnodes import read_plain
from safelaunch.config.guessfolder import Guess
from safelaunch.config.resumeway import ARRAY
from safelaunch.config.values import NEVER_EXPANDED

SCHEMA_FILE = "train.schema.json"   # what the first line of a draft points to: beside it
# What needs no quotes anywhere, lists in brackets included.
_BARE = re.compile(r"[A-Za-z0-9_./+-][A-Za-z0-9_./+@%=-]*(?: [A-Za-z0-9_./+@%=-]+)*")
# JSON leaves these as they are; YAML takes them as line breaks, as a byte order mark, or not at all (1.2, section 5).
_NOT_PRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


@dataclass(frozen=True)
class Draft:
    """What a first train.yaml says; `notes` become comments at its top."""

    name: str | None
    command: str
    setup: str = ""
    slurm: Mapping[str, str | int | bool] = field(default_factory=dict)
    launch: Mapping[str, str | int | bool] = field(default_factory=dict)
    notes: Sequence[str] = ()
    srun_extra: Sequence[str] = ()
    kill_signal: str | None = None
    script: str | None = None   # the path of an sbatch script, in place of command and setup
    saves: Guess | None = None  # where it seems to save


EXAMPLE = Draft(
    name=None,
    command="python train.py ${RESUME_ARGS}",
    slurm={"nodes": 1, "gpus_per_node": 8, "cpus_per_task": 8, "time": "20:00:00"},
    launch={"with": "torchrun", "nproc_per_node": 8},
)

# What the command is told once there is a complete checkpoint; else the file would not pass the check.
_BY_ARGS = """
# Where checkpoints appear. ${RESUME_ARGS} in command stands for args, as soon as there is a complete one.
# resume:
#   dir: checkpoints
#   args: "--resume {path}"
"""
_BY_TRAINING = """
# Where checkpoints appear. by: training says that the training finds its newest one by itself; else write
# args: "--resume {path}" instead, and ${RESUME_ARGS} into command, where the training takes them.
# resume:
#   dir: checkpoints
#   by: training
"""
# A script in a file is told in its environment.
_BY_SCRIPT = """
# Where checkpoints appear. After a failure the script starts again from its first line. So it must load the newest one
# by itself, or read $SAFELAUNCH_RESUME_PATH, which then says which one that is.
# resume:
#   dir: checkpoints
"""
_GROUP = """# Touch control/kill in the run folder to end the run for good; with a group, its members may do so too.
# kill_switch:
#   group: ourteam

"""
_MORE = f"""
# How often to try again: in all, and in a row without progress.
# restart:
#   max_restarts: 30
#   max_without_progress: 3

{_GROUP}# Keep failed nodes for people to look at.
# preserve_site:
#   for: 2h
"""


def render_draft(draft: Draft) -> str:
    """The text of a train.yaml that passes the check, with comments on what to add."""
    lines = [f"# yaml-language-server: $schema={SCHEMA_FILE}",   # completion in editors
             "# What safelaunch trains. All keys: docs/train-yaml.md; is it right? safelaunch check FILE"]
    lines += [f"# NOTE: {''.join(filter(str.isprintable, note))}" for note in draft.notes]
    lines.append("version: 1")
    if draft.name is not None:
        lines.append(f"name: {render_value('name', draft.name)}")
    lines += _what_runs(draft)
    kill_switch = {"signal": draft.kill_signal} if draft.kill_signal else {}
    flags = {"extra": draft.srun_extra} if draft.srun_extra else {}
    sections: dict[str, tuple[str, Mapping[str, object]]] = {
        "slurm": ("Any long option of sbatch.", draft.slurm), "srun": ("Flags of srun.", flags),
        "launch": ("torchrun, srun or none.", draft.launch),
        "kill_switch": ("What asks the training to save and end.", kill_switch)}
    for section, (comment, values) in sections.items():
        if values:
            rows = (f"  {render_value('', key)}: {render_value('', value)}" for key, value in values.items())
            lines += ["", f"# {comment}", f"{section}:", *rows]
    resume = _BY_SCRIPT if draft.script else _BY_ARGS if re.search(ARRAY, draft.command) else _BY_TRAINING
    resume = resume if draft.saves is None else _guessed(resume, draft.saves)
    return "\n".join(lines) + "\n" + resume + (_MORE if not draft.kill_signal else _MORE.replace(_GROUP, ""))


def _guessed(resume: str, saves: Guess) -> str:
    """With the folder that the script names: in force where the script loads from it by itself, too."""
    words = "".join(filter(str.isprintable, saves.words))
    is_in_force = saves.is_loaded and resume is not _BY_ARGS and "$" not in saves.folder   # else more is guessed
    said = f"# The folder is a guess, from {words!r} in line {saves.line} of the script"
    head, key, rest = resume.partition("# resume:\n")
    rest = rest.replace("dir: checkpoints", f"dir: {render_value('', saves.folder).replace('$${', '${')}")
    head += f"{said}.\n" if is_in_force else f"{said}; if it is right, take the # away.\n"
    return head + ((key + rest).replace("# ", "") if is_in_force else key + rest)


def _what_runs(draft: Draft) -> list[str]:
    if draft.script:
        return ["", "# The sbatch script, as it is, read when this file is submitted. Its #SBATCH lines are slurm:.",
                f"script: {render_value('script', draft.script)}"]
    lines = ["", "# Shell code, expanded on the nodes only."]
    if draft.setup:
        lines += _block("setup", draft.setup)
    return lines + _block("command", draft.command)


def render_value(path: str, value: object) -> str:
    """One value as YAML in one line; ${ is written $${ where it would be filled in."""
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(render_value(path, item) for item in value) + "]"
    if not isinstance(value, str):
        return json.dumps(value)
    text = value if path in NEVER_EXPANDED else value.replace("${", "$${")
    if _BARE.fullmatch(text) and isinstance(read_plain(text), str) and not text.startswith("-"):
        return text
    return _NOT_PRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


def _block(key: str, text: str) -> list[str]:
    """Shell code as people write it: many lines as a block, if YAML gives them back unchanged."""
    lines = text.strip("\n").split("\n")
    if len(lines) == 1 or lines[0] != lines[0].lstrip() or not all(map(str.isprintable, text.replace("\n", ""))):
        return [f"{key}: {render_value(key, text)}"]
    return [f"{key}: |", *(f"  {line}" if line else "" for line in lines)]
