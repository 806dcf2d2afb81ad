"""Which statements of a user's sbatch script may run on every node, as `setup` does, and which may not.

sbatch runs a script once, on the first node. What only sets up a shell gives the same on each node. Anything that
nobody has put on these lists may not: the script is then kept as it is.
"""

from __future__ import annotations

import re
from enum import Enum

from safelaunch.config.shell.shelllines import Statement

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_ASSIGNMENT = re.compile(rf"(?:export\s+)?({_NAME})(?:\[[^]]*\])?\+?=")
# Every attempt gets its own (a port in use is a known failure).
OURS = frozenset(("MASTER_ADDR", "MASTER_PORT"))
_ARRAY = re.compile(r"=\([^()]*\)")
_COMMAND = re.compile(rf"(?:{_NAME}\+?=\S*\s+)+(?!{_NAME}\+?=)\S")
# Set up a shell, and change nothing outside of it.
_SETS_UP = frozenset(("set", "ulimit", "module", "ml", "source", ".", "export", "unset", "cd", "umask", "shopt", ":"))
# The same by these words alone; by others these programs make or run something, once as under sbatch.
_ACTIVATES = {"conda": r"(?:de)?activate\b", "mamba": r"(?:de)?activate\b", "micromamba": r"(?:de)?activate\b",
              "spack": r"(?:load|unload|env activate)\b"}
_PRINTS = frozenset(("echo", "printf", "date", "hostname", "nvidia-smi", "env", "printenv", "pwd", "which", "whoami",
                     "uname", "free", "df", "lscpu", "nvcc", "id"))
# Of those that can do more, what only prints.
_ONLY_PRINTS = {"printf": r"(?!-v)", "date": r"(?!.*(?:-s\b|--set))", "hostname": r"(?:-[sfiIA])?\Z", "env": r"\Z",
                "nvidia-smi": r"(?:-L|-q|topo -m|--query\S*.*)?\Z"}
_HOOK = re.compile(r'eval "?\$\((?:\S*/)?(?:conda|mamba|micromamba) [^()]*\)"?\Z')
_BRANCH = re.compile(r"(?:if|then|else|elif|fi|for|while|until|do|done|case|esac|select|function)\b|[{}(!]|\[\[?\s")
_SAME = re.compile(r"\$\((?:cat(?!\s+/(?:proc|sys|dev|etc|tmp)\b)|dirname|basename|realpath|readlink|pwd|which"
                   r"|nproc|wc|id)\b[^()`|;&]*\)")
_PRINTED = re.compile(r"\$\((?:date(?:\s+(?:-[uIR]|['\"]?\+[^()`;&|]*))?|hostname(?:\s+-[sfiI])?|whoami|uname[^()`;&|]*"
                      r"|scontrol show [^()`;&|]*|squeue [^()`;&|]*)\)")
_ARGUMENT = re.compile(r"\$(?:[0-9@*#]|\{[0-9@*#])|BASH_SOURCE")
_DIFFERS = re.compile(r"\$\$|\b(?:S?RANDOM|SECONDS|BASHPID|EPOCHSECONDS|HOSTNAME|SLURMD_NODENAME"
                      r"|SLURM_(?:NODEID|PROCID|LOCALID|GTIDS|TASK_PID|TOPOLOGY_ADDR))\b")
_QUIET = re.compile(r"[0-9&]?>{1,2}\s*(?:/dev/null|&[12])")
_SINGLE = re.compile(r"'[^']*'")
_IN_QUOTES = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\$\([^()]{0,2000}\)"
                        r"|\$\(\([^()]{0,400}(?:\([^()]{0,400}\)[^()]{0,400}){0,9}\)\)|\$\{[^}]{0,400}\}")


class Place(Enum):
    """What becomes of a statement."""

    KEEP = "it goes into setup"
    DROP = "it only prints"
    OURS = "safelaunch sets it"
    NODES = "a value made of the list of nodes: needless once safelaunch sets MASTER_ADDR"


def kind_of(statement: Statement) -> tuple[Place | None, str]:
    """What becomes of it; None and the reason where it may not run on every node."""
    text = statement.text
    if fault := _shape_fault(statement):
        return None, fault
    if found := _ASSIGNMENT.match(text):
        if _COMMAND.match(_ARRAY.sub("=_", _IN_QUOTES.sub("_", text))):
            return None, f"{found[1]}: a variable that is set for one command"
        if set(names_of(text)) <= OURS:
            return Place.OURS, ""
        if "scontrol show hostname" in text and not text.startswith("export"):
            return Place.NODES, ""
        return _kept_if_same(text, found[1])
    first = text.split(None, 1)[0]
    if first in _PRINTS or text in ("module list", "ml", "conda list", "conda info", "wait"):
        return _if_it_only_prints(text, first)
    if _HOOK.match(text):
        return Place.KEEP, ""
    if first in _ACTIVATES and not re.match(_ACTIVATES[first], _behind(text)):
        return None, f"{first} {_behind(text).partition(' ')[0]} would run on every node at once, and not once"
    if first in _SETS_UP or first in _ACTIVATES or re.match(r"mkdir\s+-p\b", text):
        return _kept_if_same(text, first)
    return None, f"{first} would run on every node at once, and not once as under sbatch"


def _shape_fault(statement: Statement) -> str:
    bare = _IN_QUOTES.sub("_", statement.text)
    if _BRANCH.match(statement.text) or re.match(rf"{_NAME}\s*\(\)", statement.text):
        return "a loop, a branch or a function"
    if statement.has_here:
        return "a here-document"
    if statement.is_background:
        return "a command in the background"
    if re.search(r"&&|\|", bare):
        return "a condition or a pipe"
    if _ARGUMENT.search(_SINGLE.sub("", statement.text)):
        return "an argument of the script"
    return ""


def _behind(text: str) -> str:
    return text.partition(" ")[2].strip()


def _if_it_only_prints(text: str, first: str) -> tuple[Place | None, str]:
    if ">" in _QUIET.sub("", _IN_QUOTES.sub("", text)):
        return None, "writes a file"
    within = _PRINTED.sub("", _SAME.sub("", _SINGLE.sub("", text))).replace("$((", "")
    if "$(" in within or "`" in within or not re.match(_ONLY_PRINTS.get(first, ""), _behind(_QUIET.sub("", text))):
        return None, f"{first} here does more than print"
    return Place.DROP, ""


def differs(text: str) -> bool:
    """Whether the shell on each node would make something else of it."""
    return bool(_DIFFERS.search(_SINGLE.sub("", text)))


def _kept_if_same(text: str, name: str) -> tuple[Place | None, str]:
    if _DIFFERS.search(text):
        return None, f"{name}: its value would differ from node to node"
    rest = _SAME.sub("", text).replace("$((", "")
    if "$(" in rest or "`" in rest:
        return None, f"{name}: a value that a command gives could differ from node to node"
    if re.search(r"[<>]", _QUIET.sub("", _IN_QUOTES.sub("", text))):
        return None, f"{name}: reads or writes a file"
    return Place.KEEP, ""


def assigned(text: str) -> str | None:
    """The variable that a statement assigns, if it does."""
    found = _ASSIGNMENT.match(text)
    return found[1] if found else None


def names_of(text: str) -> list[str]:
    """All variables that one statement assigns: `export A=1 B+=2`, `C[0]=3`."""
    return re.findall(rf"(?:^|\s)({_NAME})(?:\[[^]]*\])?\+?=", _IN_QUOTES.sub("_", text))
