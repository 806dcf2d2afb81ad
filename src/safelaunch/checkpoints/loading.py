"""Whether what an attempt wrote before its first step is about its checkpoint.

An edit that raised at import cost a good one: two attempts had died before their first step. A traceback without any
word of loading speaks for the checkpoint; a death without a traceback says nothing.
"""

from __future__ import annotations

import re

# Functions, variables and messages of loading; not those of imports (_find_and_load, load_entry_point) and data.
_LOADING = re.compile(
    rb"(?i)load_state_dict|load_checkpoint|state_dict|\b(?:torch|pickle|np|numpy|dcp|safetensors|joblib|json)\.load"
    rb"|\bload_file\(|safe_open|from_pretrained|unpickl|restor(?:e|ed|ing)\b|\bresum(?:e|ed|ing)\b|checkpoint|\bckpt\b"
    rb"|\bload(?:ed|ing)\b.{0,40}\b(?:state|weights|model|optimizer|step|epoch)\b|PytorchStreamReader")
# A command line, as `set -x`, a usage or an error of arguments shows it; and what imports a function of loading.
_COMMAND = re.compile(rb"\bimport\b|^(?:\[[^\]\s]{1,64}\]:)?\s{0,8}\+{1,4} |\s\[?--?[a-z]")
_RAISED = re.compile(rb"Traceback \(most recent call last\)|^\W{0,4}(?:\[[^\]\s]{1,64}\]:)?\s{0,8}"
                     rb"(?:SyntaxError|IndentationError)\b|: error: (?:unrecognized|argument|the following)", re.M)
LONGEST = 4096   # bytes of a line that are read


def judge_loading(text: bytes, path: str) -> bool | None:
    """True: a line speaks of loading or of the checkpoint at `path`; False: the program raised, and none does; None =
    nothing was raised. `text`: the end of its log.
    """
    name = path.rstrip("/").rpartition("/")[2].encode()
    lines = [line[:LONGEST] for line in re.split(rb"[\r\n]", text)]
    spoken = [line for line in lines if not _COMMAND.search(line)]
    if any((name and name in line) or _LOADING.search(line) for line in spoken):
        return True
    return False if _RAISED.search(text) else None
