"""Whether a script looks at how its sruns end. One that does not ends with 0 whatever became of them."""

from __future__ import annotations

import re

from safelaunch.core.config.shelllines import Statement, Unclosed, split_statements

_SHELL = re.compile(r"#!\s*(?:\S*/env\s+(?:-S\s+)?)?(?:\S*/)?(?:ba|da|z|k|mk|c|tc)?sh(?:\s|\Z)")
_CODE = re.compile(r"\$\{?\?|PIPESTATUS|pipestatus|\$\{?status\b|\btrap\b.*\b(?:ERR|EXIT)\b")
_FUNCTION = re.compile(r"(?:function\s+)?([\w:-]{1,80})\s*\(\)|function\s+([\w:-]{1,80})")
_ASKS = re.compile(r"(?:if|elif|while|until|!)\s|.*(?:&&|\|\|)", re.DOTALL)


def looks_at_codes(text: str) -> bool:
    """Whether it does, or may. Only of a shell's script, none of whose sruns stands in the background, is it known."""
    try:
        statements = split_statements(text)
    except Unclosed:
        return True
    if not _SHELL.match(text.partition("\n")[0]) or any(_CODE.search(one.text) for one in statements):
        return True
    functions = [name for one in statements for pair in _FUNCTION.findall(one.text) for name in pair if name]
    starts = re.compile("|".join((r"(?i:srun)\b", *(rf"\b{re.escape(name)}\b" for name in functions))))
    return any(_asks(one) for one in statements if starts.search(one.text))


def _asks(one: Statement) -> bool:
    return one.is_background or _ASKS.match(re.sub(r"'[^']*'|\"(?:\\.|[^\"\\])*\"", "", one.text)) is not None
