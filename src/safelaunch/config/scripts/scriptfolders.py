"""Folders whose name is another one in each attempt, or in each job: a restart finds no checkpoint in them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from safelaunch.config.shell.shelllines import Statement

_NODE, _JOB, _BEGIN = "a node's name", "$SLURM_JOB_ID", "$SLURM_JOB_START_TIME"
_AFTER = {_NODE: "a restart on other nodes", _JOB: "the next job of the run", _BEGIN: "the next job of the run"}
# What is another one each time: the text that is met, and how often it changes.
_FRESH: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?:\$\(|`)\s*date\b|%\(%|\$\{now:|"
                r"(?:\$\(|`)[^`]{0,400}?\b(?:strftime|isoformat|datetime|time\.time)\b"), "the date"),
    (re.compile(r"\$\{?(?:RANDOM|SRANDOM|EPOCHSECONDS|EPOCHREALTIME|SECONDS)\b"), "a new number"),
    (re.compile(r"(?:\$\(|`)\s*(?:mktemp|uuidgen)\b|/proc/sys/kernel/random|/dev/u?random|"
                r"(?:\$\(|`)[^`]{0,400}?\b(?:uuid[14]?|token_hex|randint|randbytes|openssl rand|shuf)\b"),
     "a new name"),
    (re.compile(r"\$\$|\$\{?(?:BASHPID|PPID)\b"), "the shell's pid"),
    (re.compile(r"(?:\$\(|`)\s*(?:ls|find)\b[^`]{0,400}?\bwc -l"), "a count of what is there"),
    (re.compile(r"(?:\$\(|`)\s*(?:hostname|uname -n)\b|"
                r"\$\{?(?:HOSTNAME|HOST|SLURMD_NODENAME|SLURM(?:_JOB)?_NODELIST)\b"), _NODE),
    (re.compile(r"\$\{?SLURM_JOB_?ID\b"), _JOB), (re.compile(r"\$\{?SLURM_JOB_START_TIME\b"), _BEGIN))
_NEEDLE = re.compile(r"date|RANDOM|EPOCH|SECONDS|mktemp|uuid|rand|\$\$|SLURM_JOB_?ID|%\(%|shuf|PID\b|wc -l|START_TIME|"
                     r"\$\{now:|time|isoformat|token_hex|hostname|uname|HOST|NODENAME|NODELIST")
_ASSIGNED = re.compile(r"(?:(?:export\s+|readonly\s+|local\s+|declare\s+(?:-\w+\s+)*)?(?=\w+=)|printf\s+-v\s+)"
                       r"(\w+)(?:=|\s+)(.*)\Z", re.DOTALL)
_HOLDS = re.compile(r"(?i)out|dir|ckpt|checkpoint|save|folder|path|work|root|result|exp(?!ort)|run[-_]?name")
# No checkpoint is kept there: of a job or attempt alone by right.
_PASSING = re.compile(r"(?i)(?<![a-z])port|log|rdzv|wandb|hostfile|\.(?:out|err|txt|json)\b")
_LOCAL = re.compile(r"(?i)tmp|\btemp\b|local|cache|shm")
_COPIES = re.compile(r"(?:trap\s.*)?\b(?:cp|rsync|mv|tar|srun\s.*\b(?:cp|rsync|tar))\s")
_KEEPS = re.compile(r"(?i)ckpt|checkpoint|save|result|(?<![a-z])out(?:put)?(?![a-z])")   # wherever they are
_OPTION = re.compile(r"(?:(?<![\w.-])--?[\w.-]+[= ]|(?<![\w.])[\w.]+=)[\"']?[^\s-]\S*")
_CALL = re.compile(r"\$\([^)]*\)")
_ASKS = re.compile(r"\b(?:scontrol|squeue|sacct)\s[^|)`]*")   # of the job, by its id: that is in no name
_STARTS = re.compile(r"(?:\A|\s|/)(?:srun|torchrun|accelerate|deepspeed|python[\d.]*|mpirun)\s")
_NEW = ("{} is in the name of a folder or run: after {} it is a new one, where no checkpoint is found; write "
        "${{SAFELAUNCH_RUN_ID:-…}}, which stays the same")


def fresh_folders(statements: Iterable[Statement]) -> list[tuple[int, str]]:
    """(line, what is said) of each folder for checkpoints that a restart would not find again."""
    made: dict[str, tuple[int, str]] = {}   # variables whose value is a new one: where, and by what
    local: dict[str, tuple[int, str]] = {}   # those of a place that is a job's own by right
    found: dict[int, str] = {}
    statements = list(statements)
    if any("SAFELAUNCH_RESUME_PATH" in one.text for one in statements):
        return []
    for one in statements:
        if not (_NEEDLE.search(one.text) or any(name in one.text for name in (*made, *local))):
            continue
        if assigned := _ASSIGNED.match(one.text):
            name, value = assigned[1], assigned[2]
            source = _source(value, made, one.number)
            if source and _LOCAL.search(value) and not _PASSING.search(f"{name}={value}"):
                local[name] = source
            if source and not _is_passing(name, value):
                made[name] = source
                if _HOLDS.search(name) and "/" in _CALL.sub("", value):
                    found.setdefault(source[0], source[1])
        elif _is_folder(one.text, made):
            source = _source(one.text, made, one.number)
            assert source is not None
            found.setdefault(source[0], source[1])
        elif kept := _kept_locally(one.text, local):
            found.setdefault(*kept)
    for name, source in local.items():
        if any(_COPIES.match(one.text) and re.search(rf"\$\{{?{name}\b", one.text) for one in statements):
            found.pop(source[0], None)   # the script brings it home
    return [(number, _NEW.format(what, _AFTER.get(what, "a restart"))) for number, what in sorted(found.items())]


def _source(text: str, made: dict[str, tuple[int, str]], number: int) -> tuple[int, str] | None:
    """Where the part of a text that is another one each time comes from, and what it is."""
    for name, source in made.items():
        if re.search(rf"\$\{{?{name}\b", text):
            return source
    text = _ASKS.sub("", text)
    what = next((what for pattern, what in _FRESH if pattern.search(text)), None)
    return None if what is None or "SAFELAUNCH_RUN_ID" in text else (number, what)


def _is_folder(text: str, made: dict[str, tuple[int, str]]) -> bool:
    """Whether a statement makes, enters or hands on a folder of such a name."""
    first = text.split(None, 1)[0]
    if first in ("mkdir", "cd", "pushd"):
        return _source(text, made, 0) is not None and not _is_passing("", text)
    if not _STARTS.search(f"{text} "):
        return False
    if any(_HOLDS.search(name) and re.search(rf"\$\{{?{name}\b", text) for name in made):
        return True
    return any(_source(option[0], made, 0) is not None and _HOLDS.search(option[0])
               and not _is_passing(*re.split("[= ]", option[0], maxsplit=1)) for option in _OPTION.finditer(text))


def _kept_locally(text: str, local: dict[str, tuple[int, str]]) -> tuple[int, str] | None:
    """Where the local folder comes from that a training is given for its checkpoints."""
    for option in _OPTION.finditer(text) if local and _STARTS.search(f"{text} ") else ():
        holder, value = re.split("[= ]", option[0], maxsplit=1)
        for name, source in local.items():
            if _KEEPS.search(holder) and not _LOCAL.search(name) and re.search(rf"\$\{{?{name}\b", value):
                return source
    return None


def _is_passing(holder: str, value: str) -> bool:
    """Whether it is of a job or attempt alone by right: no option or variable that is named for what is kept."""
    if _PASSING.search(f"{holder}={value}") or _LOCAL.search(holder):
        return True
    return _LOCAL.search(value) is not None and not _KEEPS.search(holder)
