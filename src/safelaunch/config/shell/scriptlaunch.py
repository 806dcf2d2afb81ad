"""The one statement of an sbatch script that starts the training ▸ command:, launch: and srun.extra, or why not.

A flag that nobody has put on these lists is no reason to guess: the script is then kept as it is. Sources: srun(1) of
Slurm 22.05 to 24.11; torch.distributed.run of PyTorch 2.x.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from safelaunch.config.resumeway import takes_words
from safelaunch.config.shell.scriptsetup import differs
from safelaunch.launch.launchers import LAUNCHERS, find_launcher

# A word as bash sees it, its quotes kept: `"$DIR/a b"`.
_WORD = re.compile(r"""(?:[^\s'"\\]+|'[^']*'|"(?:\\.|[^"\\])*"|\\.)+""")
_STARTS = re.compile(r"(?:(?:time|exec)\s+)*(\S+)")
_PYTHON = re.compile(r"(?:\S*/)?python[\d.]*\Z")
_TEE = re.compile(r"&? ?tee [^|;&<>]*")
_LAST_REDIRECTION = re.compile(r"\s(?:[12&]?>{1,2}\s{0,20}[^\s;&|<>()'\"]{1,400}|2>&1|>&2|1>&2)\Z")
_LITERAL = re.compile(r"[A-Za-z0-9_.,:/@%+=^~#-]+\Z")

_LETTERS = {"n": "ntasks", "N": "nodes", "c": "cpus-per-task", "l": "label", "u": "unbuffered", "K": "kill-on-bad-exit",
            "W": "wait", "o": "output", "e": "error", "m": "distribution", "J": "job-name", "G": "gpus", "v": "verbose",
            "Q": "quiet"}
# Of srun: what safelaunch does by itself; what must be the job's own number; what goes to srun.extra as it is.
_DONE = frozenset(("label", "unbuffered", "kill-on-bad-exit", "wait", "output", "error", "open-mode", "job-name",
                   "verbose", "quiet", "overlap", "no-kill", "jobid"))
_FLAGS = frozenset(("label", "unbuffered", "kill-on-bad-exit", "verbose", "quiet", "overlap", "no-kill",
                    "container-mount-home", "no-container-mount-home", "container-remap-root",
                    "no-container-remap-root", "container-writable", "container-readonly", "container-entrypoint",
                    "no-container-entrypoint"))
_VARIABLES = {"SLURM_NNODES": "nodes", "SLURM_JOB_NUM_NODES": "nodes", "SLURM_NTASKS": "ntasks",
              "SLURM_NPROCS": "ntasks",
              "SLURM_NTASKS_PER_NODE": "ntasks-per-node", "SLURM_CPUS_PER_TASK": "cpus-per-task"}
_EXTRA = frozenset(("cpu-bind", "gpu-bind", "mem-bind", "accel-bind", "hint", "distribution", "mpi", "gres", "gpus",
                    "gpus-per-node", "gpus-per-task", "threads-per-core", "mem"))
# Of torchrun: what safelaunch sets for each attempt.
_SET = frozenset(("nnodes", "node-rank", "nproc-per-node", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf",
                  "master-addr", "master-port", "max-restarts", "role", "tee", "standalone", "monitor-interval"))
_ALL_GPUS = re.compile(r"gpu|auto|\"?\$\{?SLURM_GPUS_(?:ON|PER)_NODE\}?\"?")


class Unfit(Exception):
    """Why this statement cannot become command:."""


@dataclass
class Start:
    """What a train.yaml says of it, and what is to be told."""

    command: str
    launch: dict[str, str | int]
    extra: list[str] = field(default_factory=list)
    tasks_per_node: int | None = None   # to be written down: safelaunch's own default would be another
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Numbers:
    """What the #SBATCH lines ask for, and the numbers that the script has given names."""

    nodes: int
    slurm: Mapping[str, str | int | bool]
    numbers: Mapping[str, str]   # name → digits, or the name of another variable

    @property
    def tasks(self) -> int:
        """How many tasks an srun without numbers of its own starts: one for each node."""
        per_node = self.slurm.get("ntasks_per_node")
        return _whole(self.slurm.get("ntasks")) or self.nodes * (_whole(per_node) or 1)

    @property
    def counts(self) -> dict[str, int | None]:
        """srun's options that count, each with the job's own number."""
        per_node, rest = divmod(self.tasks, self.nodes)
        return {"nodes": self.nodes, "ntasks": self.tasks, "ntasks-per-node": None if rest else per_node,
                "cpus-per-task": _whole(self.slurm.get("cpus_per_task"))}

    def number(self, text: str) -> int | None:
        """A number as the script writes it: digits, a name that it gave to some, or Slurm's variable for one."""
        text = text.strip("\"'")
        name = re.fullmatch(r"\$(?:(\w+)|\{(\w+)\})", text)
        if name is not None:
            text = self.numbers.get(name[1] or name[2], name[1] or name[2])
        if text in _VARIABLES:
            return self.counts[_VARIABLES[text]]
        return int(text) if text.isascii() and text.isdigit() else None


def starts_training(text: str) -> bool:
    """Whether a statement may be the training: srun, a launcher, or Python."""
    found = _STARTS.match(text)
    first = found[1] if found else ""
    return first == "srun" or bool(_PYTHON.fullmatch(first)) or find_launcher([first]) is not None


def read_launch(text: str, job: Numbers) -> Start:
    """What becomes of the statement; raises Unfit."""
    notes = []
    text, output = _without_redirections(text)
    if output:
        notes.append(f"left out: {output}: the output of each attempt is in the run folder (safelaunch logs)")
    if "$(" in text or "`" in text:
        raise Unfit("a command within the command that starts the training")
    if re.search(r"[|;&<>]", re.sub(r"'[^']*'|\"(?:\\.|[^\"\\])*\"", "", text)):
        raise Unfit("more than one command")
    if re.search(r"\$(?:[0-9@*#]|\{[0-9@*#])", re.sub(r"'[^']*'", "", text)):
        raise Unfit("an argument of the script")
    if not _is_whole(text):
        raise Unfit("quotes that are hard to read")
    if differs(text):
        raise Unfit("a value that differs from node to node, or from task to task")
    words: list[str] = _WORD.findall(text)
    while words[0] in ("time", "exec"):
        words.pop(0)
    made = _by_srun(words[1:], job) if words[0] == "srun" else _without_srun(words, job)
    if takes_words(made.command):
        made.command += " ${RESUME_ARGS}"
        notes.append("${RESUME_ARGS} was put behind the command: with resume: it says where to go on from")
    made.notes[:0] = notes
    return made


def _without_redirections(text: str) -> tuple[str, str]:
    """The command, and `> log 2>&1` or `2>&1 | tee log` behind it."""
    head, pipe, tail = text.rpartition("|")
    taken = [f"{pipe}{tail}"] if pipe and _TEE.fullmatch(tail) and _is_whole(head) else []
    rest = (head if taken else text).rstrip()
    while (found := _LAST_REDIRECTION.search(rest)) and _is_whole(rest[:found.start()]):
        taken.insert(0, found[0].strip())
        rest = rest[:found.start()].rstrip()
    return (rest, " ".join(taken)) if taken else (text, "")


def _is_whole(text: str) -> bool:
    """Whether all of it is words: no quote is open at its end."""
    return not _WORD.sub("", text).strip()


def _without_srun(words: list[str], job: Numbers) -> Start:
    if job.nodes != 1:
        raise Unfit(f"without srun it runs on the first of {job.nodes} nodes only")
    if find_launcher(words):
        return _by_launcher(words, job)
    if job.tasks != 1:
        raise Unfit(f"without srun it runs once, and the #SBATCH lines ask for {job.tasks} tasks")
    return Start(" ".join(words), {"with": "none"})


def _by_srun(words: list[str], job: Numbers) -> Start:
    extra, dropped = [], []
    tasks = job.tasks
    while words and words[0].startswith("-"):
        flag, name, value = _next_flag(words)
        if name in job.counts:
            if (number := job.number(value)) is None or number != job.counts[name]:
                raise Unfit(f"srun {flag} is not the {name} of the #SBATCH lines ({job.counts[name] or 'not given'})")
        elif name in _DONE or (name == "export" and value.split(",")[0] == "ALL" and "=" not in value):
            dropped.append(flag)
        elif name in _EXTRA or name.startswith(("container-", "no-container-")):
            if value and not _LITERAL.match(value.strip("\"'")):
                raise Unfit(f"srun.extra in train.yaml is not read by a shell, and {flag} has a variable in it")
            extra.append(f"--{name}={value.strip(chr(34) + chr(39))}" if value else f"--{name}")
        else:
            raise Unfit(f"srun {flag} has no place in train.yaml")
    if not words:
        raise Unfit("srun without a command")
    if tasks % job.nodes:
        raise Unfit(f"{tasks} tasks on {job.nodes} nodes are not the same number on each node")
    said = [f"flags of srun left out, safelaunch sets its own: {' '.join(dropped)}"] if dropped else []
    if find_launcher(words):
        if tasks != job.nodes:
            raise Unfit(f"{tasks // job.nodes} launchers on each node; with ntasks-per-node: 1 there is one")
        made = _by_launcher(words, job)
        return Start(made.command, made.launch, extra, None, [*said, *made.notes])
    if words[0].startswith(("$", '"$')):
        raise Unfit(f"which program {words[0]} starts is not to be seen")
    if words[0] in ("bash", "sh") and any(re.fullmatch(r"-\w*c", word) for word in words[1:3]):
        raise Unfit(f"{words[0]} {words[1]}: a script of its own in quotes")
    if re.search(r"(?:^|/)(?:accelerate|deepspeed|axolotl|ray)\Z", words[0]):
        raise Unfit(f"{words[0]} starts the ranks by flags of its own")
    return Start(" ".join(words), {"with": "srun"}, extra, tasks // job.nodes, said)


def _next_flag(words: list[str]) -> tuple[str, str, str]:
    """One flag of srun, taken from the front: as it is written, its long name, its value."""
    word = words.pop(0)
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
    else:
        name, value = _LETTERS.get(word[1:2], word), word[2:].removeprefix("=")
        equals = "=" if value else ""
        if value and name in _FLAGS and not (name == "kill-on-bad-exit" and value.isdigit()):
            raise Unfit(f"srun {word}: several flags in one word")
    if not equals and name not in _FLAGS and words:
        value = words.pop(0)
        word += f" {value}"
    return word, name, value


def _by_launcher(words: list[str], job: Numbers) -> Start:
    """What a launcher starts on each rank, its processes per node, and its flags."""
    found = find_launcher(words)
    assert found is not None
    name, words = found
    valued = LAUNCHERS[name].valued
    dropped, prefix, nproc = [], ["python", "-u"], None
    while words and words[0].startswith("-"):
        flag, equals, value = words.pop(0).partition("=")
        option = flag.lstrip("-").replace("_", "-")
        if option in valued and not equals and words:
            value = words.pop(0)
        if option in ("m", "module"):
            prefix.append("-m")
            break
        if option == "no-python":
            prefix = []
            continue
        if option not in _SET:
            raise Unfit(f"{name} {flag} has no place in train.yaml")
        dropped.append(f"{flag}{equals or ' '}{value}".strip())
        if option == "nproc-per-node":
            nproc = _processes(value, job)
        elif option == "nnodes" and job.number(value) != job.nodes:
            raise Unfit(f"{name} {flag} {value} is not the number of nodes of the #SBATCH lines ({job.nodes})")
    if not words or (prefix == ["python", "-u"] and not words[0].strip("\"'").endswith(".py")):
        raise Unfit(f"which program {name} starts is not to be seen")
    notes = [f"flags of {name} left out, safelaunch sets its own: {' '.join(dropped)}"] if dropped else []
    launch: dict[str, str | int] = {"with": name, **({"nproc_per_node": nproc} if nproc else {})}
    return Start(" ".join([*prefix, *words]), launch, notes=notes)


def _processes(value: str, job: Numbers) -> int | None:
    """Processes of one node; None = one for each GPU of it, which is safelaunch's own default."""
    if number := job.number(value):
        return number
    has_gpus = any(key in job.slurm for key in ("gpus_per_node", "gres", "gpus"))
    if has_gpus and _ALL_GPUS.fullmatch(value):
        return None
    raise Unfit(f"how many processes a node has ({value}) is not to be seen")


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
