"""Shell files that a command calls ▸ the launchers in them. A file may branch: what is found is said, not refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from safelaunch.config.shell.innerlaunchers import find_calls, is_for_one_task, way_out, why_not
from safelaunch.config.shell.shelllines import Unclosed, split_statements
from safelaunch.launch.settings import Settings

MAX_BYTES = 64 << 10
MOST = 8   # files that are looked at
_FILE = re.compile(
    r"(?:(?:exec|time|nohup|then|do|else|if|timeout \S+|env|\w+=\S*) +)*"
    r"(?P<by>(?:\S*/)?(?:bash|sh|zsh|dash|ksh)(?: +-(?!\w*c\b)\S+)* +|(?:source|\.) +)?"
    r"(?P<quote>[\"']?)(?P<name>[\w./~+@%][\w./~+@%-]*)(?P=quote)(?=\s|\Z)")
# The same behind a program that runs it, such as apptainer; and what a shell is given as code.
_BEHIND = re.compile(r"(?:apptainer|singularity|docker|podman|enroot|uv|conda|micromamba|poetry|numactl|taskset|stdbuf"
                     r"|nsys|ncu)\s.*\s(?P<by>(?:\S*/)?(?:bash|sh)\s+)(?P<name>[\w./+-]+\.sh)(?=\s|\Z)")
_INSIDE = re.compile(r"(?:\A|\s|/)(?:bash|sh|zsh|dash|ksh)\s+-\w*c\s+(['\"])(.*)\1", re.DOTALL)
_ENTERS = re.compile(r"(?:cd|pushd)\s+(\S+)\Z")
_SHELL = re.compile(r"#!\s*(?:\S*/env\s+(?:-S\s+)?)?(?:\S*/)?(?:ba|da|z|k)?sh\b")


def called_files(command: str) -> list[str]:
    """The files that a command calls by a shell or by their path, as they are written, each once."""
    try:
        statements = split_statements(command)
    except Unclosed:
        return []
    parts = [part.strip() for one in statements for part in re.split(r"&&|\|\|?|[()]", one.text)]
    found, folder = list[str](), ""
    for part in parts:
        if entered := _ENTERS.match(part):
            if "$" in entered[1] and "SLURM_SUBMIT_DIR" not in entered[1]:
                break   # where that is, nobody knows here
            folder = "" if "$" in entered[1] else _joined(folder, entered[1].strip("'\"").rstrip("/"))
        elif inside := _INSIDE.search(part):
            found += [_joined(folder, name) for name in called_files(inside[2])]
        elif (call := _BEHIND.match(part) or _FILE.match(part)) and (call["by"] or "/" in call["name"]):
            found.append(_joined(folder, call["name"]))
    return list(dict.fromkeys(found))[:MOST]


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name.removeprefix('./')}" if folder and not name.startswith(("/", "~")) else name


def hidden_launchers(settings: Settings, texts: Mapping[str, str]) -> list[str]:
    """What is to be said of launchers in the files; `texts`: of those that could be read, by their names."""
    if settings.is_script:
        return []
    found = []
    for name, text in texts.items():
        if not (_SHELL.match(text) or name.endswith((".sh", ".bash"))) or is_for_one_task(text):
            continue
        call = next((one for one in find_calls(text, settings.env) if why_not(one, settings)), None)
        if call is not None:
            found.append(f"{name}:{call.line + 1}: {call.word} {why_not(call, settings)}, if the file comes to this "
                         f"line; write {way_out(call, settings)}")
    return found
