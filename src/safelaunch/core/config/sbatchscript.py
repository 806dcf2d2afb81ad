"""An sbatch script ▸ the draft of a train.yaml, with a note for everything that was left out or guessed."""

from __future__ import annotations

import re

from safelaunch.core.config.layers import name_from_file
from safelaunch.core.config.resumeway import takes_words
from safelaunch.core.config.sbatchlines import SbatchLine, read_sbatch_lines, without_sbatch_lines
from safelaunch.core.config.sbatchoptions import LETTERS, OPTIONS, REFUSED
from safelaunch.core.config.slurmkeys import split_flags
from safelaunch.core.config.starter import Draft
from safelaunch.core.launchers import LAUNCHERS, Launcher, find_launcher

# A word as bash sees it, its quotes kept: `"$DIR/a b"`.
_WORD = re.compile(r"""(?:[^\s'"\\]+|'[^']*'|"(?:\\.|[^"\\])*"|\\.)+""")
# Every attempt gets its own (a port in use is a known failure).
_OUR_VARIABLE = re.compile(r"\s*(?:export\s+)?(MASTER_ADDR|MASTER_PORT)=")
_PROGRAMS = "|".join(("srun", *(name for row in LAUNCHERS.values() if row.valued for name in row.programs)))
_MODULES = "|".join(re.escape(name) for row in LAUNCHERS.values() if row.valued for name in row.modules)
_LAUNCHER = re.compile(rf"\s*(?:time\s+|exec\s+)?(?:{_PROGRAMS}|python3? -m (?:{_MODULES}))\s")
# The first line: which shell, and its flags, `#!/usr/bin/env -S bash -el` included.
_SHEBANG = re.compile(r"#!\s*(?:\S*/env\s+(?:-S\s+)?)?(?:\S*/)?(\S+)((?:\s+-\S+)*)")
_BRANCH = re.compile(r"\s*(?:if|for|while|until|case|function)\b|.*\(\)\s*\{|.*<<")


def draft_from_script(text: str) -> Draft:
    """The draft: #SBATCH lines as slurm:, the srun or torchrun line as command:, what stands before it as setup:."""
    body = without_sbatch_lines(text)
    name, slurm, notes = _read_directives(read_sbatch_lines(text))
    options, shell, about_shell = _read_shebang(text.partition("\n")[0])
    notes += about_shell
    setup, launch_line, after = _find_launch(body)
    if launch_line is None:
        note = "no single srun or torchrun line was found: the whole script is in command:, and runs once on every node"
        whole = "\n".join([*options, *body]).strip("\n") or "true"
        return Draft(name, whole, "", slurm, {"with": "none", **shell}, (*notes, note))
    kept = [line for line in setup if not _OUR_VARIABLE.match(line)]
    if len(kept) < len(setup):
        notes.append("MASTER_ADDR and MASTER_PORT are left out: safelaunch sets them for every attempt")
    if any(line.strip() and not line.lstrip().startswith("#") for line in after):
        notes.append("left out, as it stood after the training: " + "; ".join(filter(None, map(str.strip, after))))
    command, launch, said = _read_launch(launch_line)
    if takes_words(command):
        command += " ${RESUME_ARGS}"
        said.append("${RESUME_ARGS} was put behind the command: with resume: it says where to go on from, else nothing")
    return Draft(name, command, "\n".join([*options, *kept]).strip("\n"), slurm, {**launch, **shell}, (*notes, *said))


def _read_shebang(line: str) -> tuple[list[str], dict[str, bool], list[str]]:
    """`#!/bin/bash -le` as the line of setup that sets its options, the keys of launch: that it asks for, and notes."""
    match = _SHEBANG.match(line.rstrip("\r"))
    if match is None:
        return [], {}, []
    shell, flags = match[1], match[2].split()
    if shell not in ("bash", "sh", "dash"):
        return [], {}, [f"the script was for {shell}: setup and command are run by bash"]
    letters = "".join(flag[1:] for flag in flags if not flag.startswith("--"))
    is_login = "l" in letters or "--login" in flags
    options = "".join(letter for letter in dict.fromkeys(letters) if letter in "efux")
    left_out = [flag for flag in flags if flag != "--login" and set(flag[1:]) - set("lefux")]
    notes = [f"flags of {shell} left out: {' '.join(left_out)}"] if left_out else []
    return [f"set -{options}"] if options else [], {"login_shell": True} if is_login else {}, notes


def _read_directives(lines: list[SbatchLine]) -> tuple[str | None, dict[str, str | int | bool], list[str]]:
    """The run's name, the options for slurm:, and a note for each that safelaunch owns."""
    slurm: dict[str, str | int | bool] = {}
    notes: list[str] = []
    name = None
    for line in lines:
        if line.fault:
            notes.append(f"left out, not readable ({line.fault}): line {line.number}")
        flags, faults = split_flags(line.words)
        notes += [f"left out, no option of sbatch known here: {flag}" for flag, _ in faults]
        for option, value in flags:
            if option == "job-name" and value:
                name = name_from_file(value)
            elif option in REFUSED:
                notes.append(f"left out --{option}: {REFUSED[option]}")
            else:
                slurm[option.replace("-", "_")] = _yaml_value(value)
    notes += _settle_nodes(slurm)
    return name, slurm, notes


def _yaml_value(value: str | None) -> str | int | bool:
    if value is None:
        return True
    return int(value) if re.fullmatch(r"0|[1-9]\d{0,17}", value) else value


def _settle_nodes(slurm: dict[str, str | int | bool]) -> list[str]:
    """One number of nodes, in place: sbatch may leave it open, a run does not."""
    written, ntasks, per_node = (slurm.get(key) for key in ("nodes", "ntasks", "ntasks_per_node"))
    if isinstance(written, int) and written > 0:
        return []
    first = re.match(r"[1-9]\d*", str(written or ""))
    if first:
        slurm["nodes"] = int(first[0])
        return [f"nodes: {written} became {first[0]}: a run has a fixed number of nodes"]
    is_known = isinstance(ntasks, int) and isinstance(per_node, int) and per_node > 0
    slurm["nodes"] = -(-int(ntasks or 1) // int(per_node or 1)) if is_known else 1
    return [] if is_known or ntasks is None else [f"nodes: 1 is a guess: the script only said --ntasks={ntasks}"]


def _find_launch(body: list[str]) -> tuple[list[str], str | None, list[str]]:
    """The lines before, the one line that starts the training (continuations joined), and the lines after."""
    joined = re.sub(r"\\\n\s*", "", "\n".join(body)).split("\n")
    found = [i for i, line in enumerate(joined) if _LAUNCHER.match(f"{line} ")]
    tangled = any(_BRANCH.match(line) for line in joined)
    if len(found) != 1 or tangled or re.search(r"&&|;|\|\||&\s*$", joined[found[0]]):
        return [], None, []
    return joined[: found[0]], joined[found[0]].strip(), joined[found[0] + 1 :]


def _read_launch(line: str) -> tuple[str, dict[str, str | int], list[str]]:
    """The training's own command, launch:, and notes; `srun FLAGS torchrun FLAGS train.py` is read inwards."""
    words: list[str] = _WORD.findall(line)
    notes: list[str] = []
    while words[0] in ("time", "exec"):
        words.pop(0)
    by_srun = words[0] == "srun"
    if by_srun:
        words, dropped = _without_srun(words[1:])
        if dropped:
            notes.append(f"flags of srun left out (see srun.extra): {' '.join(dropped)}")
    if found := find_launcher(words):
        name, words = found
        command, nproc, dropped = _without_launcher(words, LAUNCHERS[name])
        notes.append(f"flags of {name} left out, safelaunch sets its own: {' '.join(dropped)}")
        launch: dict[str, str | int] = {"with": name}
        return command, {**launch, "nproc_per_node": nproc} if nproc else launch, notes
    return " ".join(words), {"with": "srun"}, notes


def _without_srun(words: list[str]) -> tuple[list[str], list[str]]:
    """The command behind srun's flags, and the flags."""
    dropped = []
    while words and words[0].startswith("-"):
        dropped.append(words.pop(0))
        flag = dropped[-1]
        name = flag[2:] if flag.startswith("--") else LETTERS.get(flag[1:2], "")
        is_open = "=" not in flag and (flag.startswith("--") or len(flag) == 2)
        if is_open and name in OPTIONS and OPTIONS[name].takes in ("required", "count") and words:
            dropped.append(words.pop(0))
    return words, dropped


def _without_launcher(words: list[str], launcher: Launcher) -> tuple[str, int | None, list[str]]:
    """The command that a launcher starts on each rank, its processes per node, and its flags."""
    dropped: list[str] = []
    nproc, prefix = None, ["python", "-u"]
    while words and words[0].startswith("-"):
        flag, equals, value = words.pop(0).partition("=")
        name = flag.lstrip("-").replace("_", "-")
        dropped.append(flag + equals + value)
        if name in ("m", "module"):
            prefix.append("-m")
            dropped.pop()
        elif name == "no-python":
            prefix = []
        elif name in launcher.valued and not equals and words:
            value = words.pop(0)
            dropped.append(value)
        if name == "nproc-per-node" and re.fullmatch(r"[1-9]\d{0,5}", value):
            nproc = int(value)
    return " ".join([*prefix, *words]), nproc, dropped
