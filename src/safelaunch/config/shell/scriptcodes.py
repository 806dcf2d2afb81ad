"""Whether a script looks at how its sruns end. One that does not ends with 0 whatever became of them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from safelaunch.config.shell.shelllines import Statement, Unclosed, split_statements

_SHELL = re.compile(r"#!\s*(?:\S*/env\s+(?:-S\s+)?)?(?:\S*/)?(?:ba|da|z|k|mk|c|tc)?sh(?:\s|\Z)")
_CODE = re.compile(r"\$\{?\?|PIPESTATUS|pipestatus|\$\{?status\b|\btrap\b.*\b(?:ERR|EXIT)\b")
_FUNCTION = re.compile(r"(?:function\s+)?(?<![\w:-])([\w:-]{1,80})\s*\(\)|function\s+([\w:-]{1,80})")
_ASKS = re.compile(r"(?:if|elif|while|until|!)\s")
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"")
_STARTS = re.compile(
    r"(?:(?:then|do|else|time|nohup|\{) +){0,4}(?:\w{1,60}=\S{0,400} +){0,40}"
    r"(?:srun|torchrun|accelerate|deepspeed|mpirun|ft_launcher|python[\d.]{0,5}(?! +-(?:c|V|m +pip)\b))\s")
_NAMED = re.compile("run|accelerate|deepspeed|launcher|python")   # in each that starts one; quickly said
_BRANCH = re.compile(r"(?:else|elif)\b|[^\s()]{1,200}\)")   # another one than that before it
_OPENS, _CLOSES = re.compile(r"(?:if|case|for|while|until|select)\b"), re.compile(r"(?:fi|esac|done)\b")
_NO_COMMAND = re.compile(r"(?:fi|esac|done|then|do|\}|\))(?:\s*[\d&]?[<>]{1,2}&?\s*[^\s|&;]+)*\W*\Z")
PIPED = ("the exit code of what stands before | tee is lost, and the script can end with 0 although this has failed; "
         "write set -o pipefail above")
FOLLOWED = ("another command follows, and the script ends with that one's exit code although this has failed; write "
            "|| exit $? behind it")


def looks_at_codes(text: str) -> bool:
    """Whether it does, or may. Only of a shell's script, none of whose sruns stands in the background, is it known."""
    try:
        statements = split_statements(text)
    except Unclosed:
        return True
    if not _SHELL.match(text.partition("\n")[0]) or any(_CODE.search(one.text) for one in statements):
        return True
    functions = _functions(statements)
    starts = re.compile("|".join((r"(?i:srun)\b", *(rf"\b{re.escape(name)}\b" for name in functions))))
    return any(_asks(one) for one in statements if starts.search(one.text))


def _functions(statements: Iterable[Statement]) -> set[str]:
    return {name for one in statements if "()" in one.text or "function" in one.text
            for pair in _FUNCTION.findall(one.text) for name in pair if name}


def _asks(one: Statement) -> bool:
    if one.is_background:
        return True
    code = _QUOTED.sub("", one.text)
    return "&&" in code or "||" in code or _ASKS.match(code) is not None


def hidden_codes(text: str, file: str) -> list[str]:
    """One sentence for each start of a training whose exit code the script loses, with its line and what to do."""
    try:
        statements = split_statements(text)
    except Unclosed:
        return []
    first, sets = text.partition("\n")[0], [one.text for one in statements if one.text.startswith("set ")]
    if not _SHELL.match(first) or "csh" in first:
        return []
    ends = any(re.search(r" -\w*e|errexit", line) for line in [first, *sets])
    is_seen = ends or looks_at_codes(text)
    is_whole = any("pipefail" in line for line in sets) or any("PIPESTATUS" in one.text for one in statements)
    functions = _functions(statements)
    found = []
    for index, one in enumerate(statements):
        if not _NAMED.search(one.text):
            continue
        code = _QUOTED.sub("''", one.text)
        if not _STARTS.match(f"{code} ") or one.is_background:
            continue
        if not is_whole and re.search(r"\|&? *tee\b", code):
            found.append(f"{file}:{one.number}: {PIPED}")
        elif not is_seen and not _asks(one) and _goes_on(statements[index + 1:], functions):
            found.append(f"{file}:{one.number}: {FOLLOWED}")
    return found


def _goes_on(behind: Iterable[Statement], functions: set[str]) -> bool:
    """Whether a command runs behind a statement; those of other branches do not."""
    depth = 0   # within another branch: 1, and 1 more for each command that opens there
    for one in behind:
        if depth:
            depth += bool(_OPENS.match(one.text)) - bool(_CLOSES.match(one.text))
        elif _BRANCH.match(one.text):
            depth = 1
        elif not _NO_COMMAND.match(one.text) and not _FUNCTION.match(one.text) and one.text.split()[0] not in functions:
            return True
    return False
