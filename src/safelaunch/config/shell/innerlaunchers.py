"""A launcher in the text of a command ▸ where it stands, what it starts, and why it may not stand there.

A command runs once for each task. Where a node has several tasks, each would start a launcher of its own, and each of
these a training of its own, on one folder of checkpoints. A step within a step waits for processors that it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from safelaunch.base.yaml.yamlnodes import Origin
from safelaunch.config.shell.shelllines import Statement, Unclosed, split_statements
from safelaunch.errors import Problem
from safelaunch.launch.jobnumbers import tasks_per_node
from safelaunch.launch.launchers import CUSTOM, LAUNCHERS
from safelaunch.launch.settings import Settings

RANKS, STEPS, RAY, JOBS = "ranks of this node", "steps of the job", "nodes of Ray", "jobs of their own"
_BY_TORCHRUN = "torchrun"
_NUMBER = "[1-9$\"]"


class Inner(NamedTuple):
    """A program that starts ranks: of what kind, and what of launch.with stands for it."""

    kind: str
    by: str
    subcommands: tuple[str, ...] = ()   # its second word must be one of these
    only_with: str = ""                 # and a pattern of its variables and words must be met: else it starts one rank


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
    "accelerate.commands.accelerate_cli": Inner(RANKS, "accelerate", ("launch",)),
    "bpslaunch": Inner(RANKS, CUSTOM), "msrun": Inner(RANKS, CUSTOM),
    "tune": Inner(RANKS, "none", ("run",), "--n(?:proc[_-]per[_-]node|nodes)"),
    "swift": Inner(RANKS, "none", ("sft", "pt", "rlhf", "infer", "eval"), f"\\bNPROC_PER_NODE={_NUMBER}"),
    "megatron": Inner(RANKS, "none", ("sft", "pt", "rlhf"), f"\\bNPROC_PER_NODE={_NUMBER}"),
    "xtuner": Inner(RANKS, "none", ("train",), f"\\bNPROC_PER_NODE={_NUMBER}"),
    "llamafactory-cli": Inner(RANKS, "none", ("train",), "\\bFORCE_TORCHRUN=[\"']?(?:[1-9$]|[tT]rue|y)"),
    "sbatch": Inner(JOBS, "script"), "salloc": Inner(JOBS, "none"),
}
INNER |= {name: Inner(RANKS, by, ("launch",) if name == "accelerate" else ())
          for by, row in LAUNCHERS.items() for name in (*row.programs, *row.modules)}

# What runs the program behind it. `-n NAME` and the like name something else.
_WRAPPERS = frozenset((
    "env", "exec", "time", "nohup", "command", "timeout", "stdbuf", "nice", "ionice", "setsid", "numactl", "taskset",
    "chrt", "sudo", "uv", "uvx", "poetry", "pdm", "hatch", "pipenv", "pixi", "rye", "conda", "mamba", "micromamba",
    "singularity", "apptainer", "docker", "podman", "podman-hpc", "shifter", "enroot", "nsys", "ncu", "nvprof",
    "strace", "ltrace", "xvfb-run", "catchsegv", "gdb", "py-spy", "scalene", "unbuffer", "script", "srun", "coverage",
    "memray", "viztracer", "debugpy", "kernprof"))
_NAMING = frozenset(("-n", "--name", "-p", "--prefix", "--env", "-e", "-o", "--output"))
_SHELLS = frozenset(("bash", "sh", "zsh", "dash", "ksh"))
_KEYWORDS = frozenset(("if", "then", "else", "elif", "do", "while", "until", "!", "{", "(", "time"))
_PYTHON = re.compile(r"python[\d.]*\Z|pypy\d*\Z")
# Python's own words (python -h): letters, those that take a value, and -m, whose value may stand in the same word.
_MODULE_OPTION = re.compile(r"-[bBdEiIOPqRsSuvx]*m(.*)", re.DOTALL)
_VALUED_OPTION = re.compile(r"-[bBdEiIOPqRsSuvx]*[WX]\Z|--check-hash-based-pycs\Z")
# Modules that run another one, behind a -m of its own.
_RUNNERS = frozenset((
    "cProfile", "profile", "pdb", "ipdb", "trace", "coverage", "debugpy", "memray", "viztracer", "kernprof",
    "line_profiler", "scalene", "torch.utils.bottleneck"))
# Packages whose modules are called as their program is: python -m colossalai.cli run …
_PACKAGES = {name.partition("-")[0]: name for name in (
    "colossalai", "lightning", "torchx", "axolotl", "ray", "accelerate", "swift", "megatron", "xtuner", "composer",
    "deepspeed", "llamafactory-cli")} | {"lightning_fabric": "fabric", "torchtune": "tune", "horovod": "horovodrun"}
_CLI_MODULE = re.compile(r"(?:.*\.)?(?:cli|__main__|main|launch|launcher|run|runner)\Z")
_TOKEN = re.compile(
    r"""(?P<quoted>'[^']*'|"(?:\\.|[^"\\])*"|\\.)|(?P<end>&&|\|\|?|[()&])|(?P<plain>[^\s'"\\|&()]+)|(?P<blank>\s+)|.""",
    re.DOTALL)
_ASSIGNED = re.compile(r"(?:export\s+|local\s+|declare\s+)?(\w+)=(.*)\Z", re.DOTALL)
_VARIABLE = re.compile(r"\"?\$\{?(\w+)\}?\"?")
# Descendants of torch.distributed.launch, of other frameworks and devices.
_MODULE = re.compile(r"(?:[\w.]+\.distributed|torch_npu(?:\.\w+)*)\.(?:launch|launcher|run)\Z")
_NAMED = re.compile("|".join((*sorted((re.escape(name) for name in INNER), key=len, reverse=True),
                              r"distributed\.(?:launch|run)", "torch_npu", "llamafactory", "horovod")))
_RANKS = re.compile("|".join(re.escape(name) for name, inner in INNER.items() if inner.kind == RANKS))
# A command that one task of a node runs, or that numbers its nodes: as the launchers' manuals have it.
_CONDITION, _TASK = re.compile(r"\[|\(\(|\btest |\bcase |\bif "), re.compile(r"\bSLURM_(?:LOCALID|PROCID)\b")
_NUMBERED = re.compile(r"(?i:node[_-]rank)|machine[_-]rank|SLURM_NODEID|SLURM_PROCID|rdzv")
_TRAINS = re.compile(r"(?:\A|[\s;&|/])(?:python[\d.]*|uv|torchrun|accelerate|deepspeed)\s(?!.*--wrap)(?=.*\bsbatch\b)",
                     re.DOTALL)
_WHICH = re.compile(r"(\$\(|`)\s*(?:which|command -v|type -[pP])\s+([\w./-]+)\s*[)`]")


class LauncherCall(NamedTuple):
    """A launcher that a text starts: its name, its words, and where it stands in the text, both from 0."""

    name: str
    inner: Inner
    words: tuple[str, ...]
    line: int
    word: str                     # as it is written
    variables: str = ""           # those that stand before it


def find_calls(text: str, env: Mapping[str, str] | None = None) -> list[LauncherCall]:
    """Each launcher that this shell code calls by its name, where `env` is set; nothing where it cannot be read."""
    if not _NAMED.search(text):
        return []
    try:
        statements = split_statements(_WHICH.sub(r"/\2", text))
    except Unclosed:
        return []
    values: dict[str, str] = dict(env or {})
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
    while words and (words[0] in _KEYWORDS or (is_set := re.match(r"\w+\+?=", words[0])) or words[0].endswith("()")):
        if words[0] not in _KEYWORDS and is_set:
            values = _with_set(values, words[0])
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
    if (call := _call(words, line, " ".join(f"{name}={value}" for name, value in values.items()))) is not None:
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
        values = _with_set(values, word)
        name = _bare(word).rpartition("/")[2]
        is_value = index and words[index - 1] in _NAMING
        if not is_value and (name in INNER or name in _SHELLS or _PYTHON.fullmatch(name) or word.startswith("$")):
            yield from _calls_of(words[index:], values, line, depth + 1)
            return


def _with_set(values: Mapping[str, str], word: str) -> Mapping[str, str]:
    """The variables, with the one that a word such as A=1 sets."""
    found = re.match(r"(\w+)=(.*)", word, re.DOTALL)
    return {**values, found[1]: _bare(found[2])} if found else values


def _call(words: list[str], line: int, variables: str) -> LauncherCall | None:
    """The launcher that these words call by its program, or as a module of Python."""
    first, rest = _bare(words[0]).rpartition("/")[2], [_bare(word) for word in words[1:]]
    inner = INNER.get(first)
    if _PYTHON.fullmatch(first):
        module, rest = _module_of(rest)
        if not module:   # python /env/bin/torchrun
            return _call(rest, line, variables) if rest and "/" in rest[0] else None
        first, inner = module, _inner_module(module, rest)
    if inner is None or (not rest and "." not in first) or rest[:1] in (["--help"], ["-h"], ["--version"], ["-V"]):
        return None
    if inner.subcommands and rest[:1] and rest[0] not in inner.subcommands:
        return None
    if inner.only_with and not re.search(inner.only_with, f"{variables} {' '.join(rest)}"):
        return None
    return LauncherCall(first, inner, tuple(rest), line, first, variables)


def _module_of(words: list[str]) -> tuple[str, list[str]]:
    """The module that words behind python run, "" where it is a file, and what stands behind it."""
    while words and words[0].startswith("-"):
        if found := _MODULE_OPTION.fullmatch(words[0]):
            words = [found[1], *words[1:]] if found[1] else words[1:]
            if words and words[0] in _RUNNERS:
                at = next((index for index, word in enumerate(words) if word == "-m"), len(words))
                words = words[at + 1:]
            return (words[0], words[1:]) if words else ("", [])
        words = words[2:] if _VALUED_OPTION.fullmatch(words[0]) else words[1:]
    return "", words


def _inner_module(module: str, rest: Sequence[str]) -> Inner | None:
    """What a module of Python starts: by its own name, by the form of its name, or as its package's program does."""
    if "." in module and module in INNER:
        return INNER[module]
    if _MODULE.match(module):
        return Inner(RANKS, CUSTOM)
    package, _, below = module.partition(".")
    inner = INNER.get(_PACKAGES.get(package, ""))
    if inner is None:
        return None
    is_its_program = rest[:1] and rest[0] in inner.subcommands if inner.subcommands else (
        not below or _CLI_MODULE.match(below))
    return inner if is_its_program else None


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


def inner_problems(settings: Settings, origins: Mapping[str, Origin], texts: Mapping[str, str]) -> list[Problem]:
    """The first launcher of `command` and of `setup` that may not stand there; `texts`: of the files, by name."""
    if settings.is_script:
        return []
    found = []
    for key in ("setup", "command"):
        text = (settings.setup if key == "setup" else settings.command) or ""
        calls = [call for call in find_calls(text, settings.env)
                 if key == "command" or call.inner.kind in (STEPS, JOBS)]
        call = next((one for one in calls
                     if why_not(one, settings) and not _is_behind_training(one, text, settings)), None)
        if call is not None and not is_for_one_task(text):
            place = _place(call, text, origins[key], texts)
            found.append(Problem(place.file, place.line, place.column, key, _said(call, settings)))
    return found


def is_for_one_task(text: str) -> bool:
    """Whether shell code asks which task it runs in."""
    condition = _CONDITION.search(text)
    return condition is not None and _TASK.search(text, condition.end()) is not None


def _is_behind_training(call: LauncherCall, text: str, settings: Settings) -> bool:
    """Whether it is a job that the training's only task submits beside it."""
    is_one = _nodes(settings) == tasks_per_node(settings.slurm, settings.launch) == 1
    return call.inner.kind == JOBS and call.word == "sbatch" and is_one and _TRAINS.search(text) is not None


def why_not(call: LauncherCall, settings: Settings) -> str:
    """Why a launcher may not stand in a command; "" = it may."""
    by, nodes, tasks = settings.launch.by, _nodes(settings), tasks_per_node(settings.slurm, settings.launch)
    if call.inner.kind == JOBS:
        return "starts another job, which this run neither sees nor restarts"
    if LAUNCHERS[by].starts_ranks:
        return f"under launch.with: {by}, which starts the ranks already"
    if call.name == "srun" and settings.cluster != "local":
        if nodes == tasks == 1 and "--overlap" in call.words:
            return ""
        return "within a step of the job, which holds the processors that it would wait for"
    if by == "ray":
        return "under launch.with: ray, which starts Ray already" if call.words[:1] == ("start",) else ""
    if tasks > 1:
        return f"would start once for each of {tasks} tasks of a node, each a training of its own in the same folders"
    words = (call.variables if call.inner.only_with else "", *call.words)
    is_one_world = call.inner.kind == RANKS and _NUMBERED.search(" ".join(words))
    if nodes > 1 and call.inner.kind != RAY and not is_one_world:
        return f"would start on each of {nodes} nodes, each a training of its own in the same folders"
    return ""


def _said(call: LauncherCall, settings: Settings) -> str:
    return f"{call.word} {why_not(call, settings)}; write {way_out(call, settings)}"


def way_out(call: LauncherCall, settings: Settings) -> str:
    """What stands for the launcher in a train.yaml."""
    inner, nodes = call.inner, _nodes(settings)
    if inner.kind == JOBS:
        file = next((word for word in call.words if re.search(r"\.(?:slurm|sbatch|sh|job|batch)\Z", word)), "FILE")
        return (f"script: {file} instead of command" if call.word == "sbatch" and "--wrap" not in " ".join(call.words)
                else "its options as slurm: and only the program as command")
    if inner.by == "none":
        numbers = " with NNODES=$SLURM_NNODES NODE_RANK=$SLURM_NODEID before it" if call.name != "tune" else \
            " with --nnodes $SLURM_NNODES --node_rank $SLURM_NODEID --master_addr $MASTER_ADDR"
        return f"launch: {{with: none}}, which starts it once on each node{numbers if nodes > 1 else ''}"
    gpus, tasks = settings.gpus_per_node, tasks_per_node(settings.slurm, settings.launch)
    count = gpus or _processes(call.words) or (tasks if tasks > 1 else 0)
    words = f"python3, -m, {call.name}" if "." in call.name else call.name
    by = f"{inner.by}, call: [{words}, …]" if inner.by == CUSTOM else inner.by
    ranks = f"{{with: {by}{f', nproc_per_node: {count}' if count else ''}}}"
    launch = ranks if LAUNCHERS[inner.by].starts_ranks else f"{{with: {inner.by}}}"
    program = next((index for index, word in enumerate(call.words) if word.endswith(".py")), None)
    python = call.words[program - 1] if program and _PYTHON.match(call.words[program - 1]) else "python"
    command = f"{python} {' '.join(call.words[program:])}" if program is not None else "python …"
    command = command if len(command) <= 60 else f"{command[:59]}…"
    return f"launch: {launch} and command: {command}"


def _nodes(settings: Settings) -> int:
    nodes = settings.slurm.get("nodes")
    return nodes or 1 if isinstance(nodes, int) else 1


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
