"""A launcher in the text of a command ▸ where it stands, what it starts, and why it may not stand there.

A command runs once for each task. Where a node has several tasks, each would start a launcher of its own, and each of
these a training of its own, on one folder of checkpoints. A step within a step waits for processors that it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from safelaunch.core.config.gpus import gpus_per_node
from safelaunch.core.config.jobnumbers import tasks_per_node
from safelaunch.core.config.shelllines import Statement, Unclosed, split_statements
from safelaunch.core.config.yamlnodes import Origin
from safelaunch.core.launchers import LAUNCHERS
from safelaunch.core.records import NamedTuple
from safelaunch.errors import Problem

RANKS, STEPS, RAY = "ranks of this node", "steps of the job", "nodes of Ray"
_BY_TORCHRUN = "torchrun"


class Inner(NamedTuple):
    """A program that starts ranks: of what kind, and what of launch.with stands for it."""

    kind: str
    by: str
    subcommands: tuple[str, ...] = ()   # its second word must be one of these


# Their names in a command line, and modules of `python -m`. Those of LAUNCHERS are added below. A new name is also in
# resolve.MAY_LAUNCH.
INNER: dict[str, Inner] = {
    "srun": Inner(STEPS, "srun"), "mpirun": Inner(STEPS, "mpi"), "mpiexec": Inner(STEPS, "mpi"),
    "mpiexec.hydra": Inner(STEPS, "mpi"), "orterun": Inner(STEPS, "mpi"), "prun": Inner(STEPS, "mpi"),
    "prterun": Inner(STEPS, "mpi"), "aprun": Inner(STEPS, "mpi"), "jsrun": Inner(STEPS, "mpi"),
    "lrun": Inner(STEPS, "mpi"), "ibrun": Inner(STEPS, "mpi"), "mpirun_rsh": Inner(STEPS, "mpi"),
    "horovodrun": Inner(STEPS, "mpi"), "horovod.runner": Inner(STEPS, "mpi"), "horovod.run": Inner(STEPS, "mpi"),
    "composer": Inner(RANKS, _BY_TORCHRUN), "composer.cli.launcher": Inner(RANKS, _BY_TORCHRUN),
    "colossalai": Inner(RANKS, _BY_TORCHRUN, ("run",)), "lightning": Inner(RANKS, _BY_TORCHRUN, ("run",)),
    "fabric": Inner(RANKS, _BY_TORCHRUN, ("run",)), "torchx": Inner(RANKS, _BY_TORCHRUN, ("run",)),
    "axolotl": Inner(RANKS, _BY_TORCHRUN, ("train",)), "torch_distributed_launcher": Inner(RANKS, _BY_TORCHRUN),
    "paddle.distributed.launch": Inner(RANKS, _BY_TORCHRUN), "ray": Inner(RAY, "ray", ("start", "up", "submit", "job")),
}
INNER |= {name: Inner(RANKS, by, ("launch",) if name == "accelerate" else ())
          for by, row in LAUNCHERS.items() for name in (*row.programs, *row.modules)}

# What runs the program behind it. `-n NAME` and the like name something else.
_WRAPPERS = frozenset((
    "env", "exec", "time", "nohup", "command", "timeout", "stdbuf", "nice", "ionice", "setsid", "numactl", "taskset",
    "chrt", "sudo", "uv", "uvx", "poetry", "pdm", "hatch", "pipenv", "pixi", "rye", "conda", "mamba", "micromamba",
    "singularity", "apptainer", "docker", "podman", "podman-hpc", "shifter", "enroot", "nsys", "ncu", "nvprof",
    "strace", "ltrace", "xvfb-run", "catchsegv", "gdb", "py-spy", "scalene", "unbuffer", "script", "srun"))
_NAMING = frozenset(("-n", "--name", "-p", "--prefix", "--env", "-e", "-o", "--output"))
_SHELLS = frozenset(("bash", "sh", "zsh", "dash", "ksh"))
_KEYWORDS = frozenset(("if", "then", "else", "elif", "do", "while", "until", "!", "{", "(", "time"))
_PYTHON = re.compile(r"python[\d.]*\Z|pypy\d*\Z")
_TOKEN = re.compile(
    r"""(?P<quoted>'[^']*'|"(?:\\.|[^"\\])*"|\\.)|(?P<end>&&|\|\|?|[()&])|(?P<plain>[^\s'"\\|&()]+)|(?P<blank>\s+)|.""",
    re.DOTALL)
_ASSIGNED = re.compile(r"(?:export\s+|local\s+|declare\s+)?(\w+)=(.*)\Z", re.DOTALL)
_VARIABLE = re.compile(r"\"?\$\{?(\w+)\}?\"?")
_NAMED = re.compile("|".join(sorted((re.escape(name) for name in INNER), key=len, reverse=True)))
_RANKS = re.compile("|".join(re.escape(name) for name, inner in INNER.items() if inner.kind == RANKS))
# A command that one task of a node runs, or that numbers its nodes: as the launchers' manuals have it.
_ONE_TASK = re.compile(r"(?:\[|\(\(|\btest |\bcase |\bif ).*\bSLURM_(?:LOCALID|PROCID)\b", re.DOTALL)
_NUMBERED = re.compile(r"node[_-]rank|machine[_-]rank|SLURM_NODEID|SLURM_PROCID|rdzv")
_WHICH = re.compile(r"(\$\(|`)\s*(?:which|command -v|type -[pP])\s+([\w./-]+)\s*[)`]")


class LauncherCall(NamedTuple):
    """A launcher that a text starts: its name, its words, and where it stands in the text, both from 0."""

    name: str
    inner: Inner
    words: tuple[str, ...]
    line: int
    word: str                     # as it is written


def find_calls(text: str) -> list[LauncherCall]:
    """Each launcher that this shell code calls by its name; nothing where the code cannot be read."""
    if not _NAMED.search(text):
        return []
    try:
        statements = split_statements(_WHICH.sub(r"/\2", text))
    except Unclosed:
        return []
    values: dict[str, str] = {}
    found: list[LauncherCall] = []
    for one in statements:
        if set_here := _ASSIGNED.match(one.text):
            values[set_here[1]] = _bare(set_here[2])
        for words in _commands(one.text):
            found += _calls_of(words, values, one.number - 1, 0)
    return found


def _commands(text: str) -> Iterator[list[str]]:
    """The words of each simple command of a statement, quotes kept."""
    words: list[str] = []
    is_open = False
    for token in _TOKEN.finditer(text):
        if token.lastgroup == "blank":
            is_open = False
        elif token.lastgroup == "end":
            yield words
            words, is_open = [], False
        elif is_open:
            words[-1] += token[0]
        else:
            words.append(token[0])
            is_open = True
    yield words


def _calls_of(words: list[str], values: Mapping[str, str], line: int, depth: int) -> Iterator[LauncherCall]:
    while words and (words[0] in _KEYWORDS or re.match(r"\w+\+?=", words[0]) or words[0].endswith("()")):
        words = words[1:]
    if not words or depth > 4:
        return
    if (name := _VARIABLE.fullmatch(words[0])) and name[1] in values:
        inside = list(_commands(values[name[1]]))
        words = [*(inside[0] if len(inside) == 1 else []), *words[1:]]
        if not words:
            return
    first = _bare(words[0]).rpartition("/")[2]
    if first in _SHELLS or first == "eval":
        yield from _inside_shell(words, values, line, depth)
        return
    if (call := _call(words, line)) is not None:
        yield call
    elif first in _WRAPPERS:
        yield from _behind_wrapper(words[1:], values, line, depth)


def _inside_shell(words: list[str], values: Mapping[str, str], line: int, depth: int) -> Iterator[LauncherCall]:
    """What `bash -c "…"` and `eval "…"` run."""
    at = next((index for index, word in enumerate(words[1:], 1) if re.fullmatch(r"-\w*c", word)), 0)
    if words[0] == "eval":
        code = " ".join(_bare(word) for word in words[1:])
    else:
        code = _bare(words[at + 1]) if at and len(words) > at + 1 else ""
    try:
        statements = split_statements(code)
    except Unclosed:
        return
    for one in statements:
        for inside in _commands(one.text):
            yield from _calls_of(inside, values, line, depth + 1)


def _behind_wrapper(words: list[str], values: Mapping[str, str], line: int, depth: int) -> Iterator[LauncherCall]:
    for index, word in enumerate(words):
        name = _bare(word).rpartition("/")[2]
        is_value = index and words[index - 1] in _NAMING
        if not is_value and (name in INNER or name in _SHELLS or _PYTHON.fullmatch(name) or word.startswith("$")):
            yield from _calls_of(words[index:], values, line, depth + 1)
            return


def _call(words: list[str], line: int) -> LauncherCall | None:
    """The launcher that these words call by its program, or as a module of Python."""
    first, rest = _bare(words[0]).rpartition("/")[2], [_bare(word) for word in words[1:]]
    if _PYTHON.fullmatch(first):
        while rest and rest[0] != "-m" and re.fullmatch(r"-[a-zA-Z]+", rest[0]):
            rest = rest[1:]
        if rest and "/" in rest[0]:   # python /env/bin/torchrun
            return _call(rest, line)
        if rest[:1] != ["-m"] or len(rest) < 2 or rest[1] not in INNER or "." not in rest[1]:
            return None
        return LauncherCall(rest[1], INNER[rest[1]], tuple(rest[2:]), line, rest[1])
    inner = INNER.get(first)
    if inner is None or not rest or rest[0] in ("--help", "-h", "--version", "-V"):
        return None
    if inner.subcommands and rest[0] not in inner.subcommands:
        return None
    return LauncherCall(first, inner, tuple(rest), line, first)


def _bare(word: str) -> str:
    """A word without its quotes."""
    return re.sub(r"'([^']*)'|\"((?:\\.|[^\"\\])*)\"|\\(.)", lambda found: found[1] or found[2] or found[3] or "", word,
                  flags=re.DOTALL)


def several_a_node(statements: Iterable[Statement], tasks: int) -> Iterator[tuple[int, str]]:
    """(line, what is said) of each srun in a script that starts a launcher in several tasks of a node."""
    for one in statements:
        if "srun" not in one.text or not _RANKS.search(one.text):
            continue
        for words in _commands(one.text):
            step = next((call for call in _calls_of(words, {}, one.number, 0) if call.name == "srun"), None)
            inside = next(_behind_wrapper(list(step.words), {}, one.number, 0), None) if step is not None else None
            if step is None or inside is None or inside.inner.kind != RANKS:
                continue
            each = _tasks_of(step.words, tasks)
            if each > 1 and not _NUMBERED.search(" ".join(inside.words)):
                yield one.number, (f"{inside.word} starts once for each of {each} tasks of a node, each a training of "
                                   f"its own in the same folders; write srun --ntasks-per-node=1 {inside.word} …")


def _tasks_of(words: tuple[str, ...], tasks: int) -> int:
    """Tasks a node of an srun; 1 where its own options say what nobody can count here."""
    joined = " ".join(words)
    if found := re.search(r"--ntasks-per-node[= ](\d+)", joined):
        return int(found[1])
    return 1 if re.search(r"(?:^| )(?:--ntasks|-n|--ntasks-per-node)(?:[= ]|\d|$)", joined) else tasks


def inner_problems(config: Mapping[str, Any], origins: Mapping[str, Origin], texts: Mapping[str, str]) -> list[Problem]:
    """The first launcher of `command` and of `setup` that may not stand there; `texts`: of the files, by name."""
    if LAUNCHERS[config["launch"]["with"]].is_script:
        return []
    found = []
    for key in ("setup", "command"):
        text = config[key] or ""
        calls = [call for call in find_calls(text) if key == "command" or call.inner.kind == STEPS]
        call = next((one for one in calls if _why_not(one, config)), None)
        if call is not None and not _ONE_TASK.search(text):
            place = _place(call, text, origins[key], texts)
            found.append(Problem(place.file, place.line, place.column, key, _said(call, config)))
    return found


def _why_not(call: LauncherCall, config: Mapping[str, Any]) -> str:
    """Why a launcher may not stand in a command; "" = it may."""
    launch, slurm = config["launch"], config["slurm"]
    by, nodes = launch["with"], slurm.get("nodes") or 1
    tasks = tasks_per_node(slurm, launch)
    if LAUNCHERS[by].starts_ranks:
        return f"under launch.with: {by}, which starts the ranks already"
    if call.name == "srun" and config["cluster"] != "local":
        if nodes == tasks == 1 and "--overlap" in call.words:
            return ""
        return "within a step of the job, which holds the processors that it would wait for"
    if by == "ray":
        return "under launch.with: ray, which starts Ray already" if call.words[:1] == ("start",) else ""
    if tasks > 1:
        return f"would start once for each of {tasks} tasks of a node, each a training of its own in the same folders"
    is_one_world = call.inner.kind == RANKS and _NUMBERED.search(" ".join(call.words))
    if nodes > 1 and call.inner.kind != RAY and not is_one_world:
        return f"would start on each of {nodes} nodes, each a training of its own in the same folders"
    return ""


def _said(call: LauncherCall, config: Mapping[str, Any]) -> str:
    gpus = gpus_per_node(config["slurm"])
    inner = call.inner
    tasks = tasks_per_node(config["slurm"], config["launch"])
    count = gpus or _processes(call.words) or (tasks if tasks > 1 else 0)
    ranks = f"{{with: {inner.by}{f', nproc_per_node: {count}' if count else ''}}}"
    launch = ranks if LAUNCHERS[inner.by].starts_ranks else f"{{with: {inner.by}}}"
    program = next((index for index, word in enumerate(call.words) if word.endswith(".py")), None)
    python = call.words[program - 1] if program and _PYTHON.match(call.words[program - 1]) else "python"
    command = f"{python} {' '.join(call.words[program:])}" if program is not None else "python …"
    command = command if len(command) <= 60 else f"{command[:59]}…"
    return f"{call.word} {_why_not(call, config)}; write launch: {launch} and command: {command}"


def _processes(words: Iterable[str]) -> str:
    """The processes of a node that a launcher's own words name."""
    joined = " ".join(words)
    found = re.search(r"--(?:nproc[_-]per[_-]node|num[_-]processes|num[_-]gpus|nproc)[= ](\d+)", joined)
    return found[1] if found else ""


def _place(call: LauncherCall, text: str, origin: Origin, texts: Mapping[str, str]) -> Origin:
    """Where the word stands in the file, as far as its text shows; else where the command stands."""
    wanted = text.split("\n")[call.line].strip() if call.line < text.count("\n") + 1 else ""
    lines = texts.get(origin.file, "").split("\n")
    called = re.compile(rf"(?<![\w-]){re.escape(call.word)}(?![\w-])")
    numbers = range(max(0, origin.line - 1), len(lines)) if origin.line else range(0)
    is_there = not any(wanted in lines[number] for number in numbers)   # else first the statement's first line
    for number in numbers:
        at = lines[number].find(wanted)
        is_there = is_there or at >= 0
        if is_there and (found := called.search(lines[number], max(0, at))):
            return Origin(origin.layer, origin.file, number + 1, found.start() + 1)
    return origin
