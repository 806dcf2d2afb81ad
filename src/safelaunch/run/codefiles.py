"""The files of the training's own code that a command names: someone may edit them between two attempts."""

from __future__ import annotations

import re
from collections.abc import Sequence

MOST_FILES = 16
_FILE = re.compile(r"(?<![\w$/.~-])[\w./~-]*\w\.(?:py|sh|bash|ya?ml|json|toml|cfg)(?![\w.])")


def code_files(*texts: str) -> tuple[str, ...]:
    """The names as they stand in the user's own shell code, each once."""
    return tuple(dict.fromkeys(name for text in texts for name in _FILE.findall(text)))[:MOST_FILES]


def tell_changed(files: Sequence[str], since: int) -> str:
    """The sentence for people; `since`: the attempt that ran with the older ones."""
    verb = "has" if len(files) == 1 else "have"
    more = f" and {len(files) - 4} more" if len(files) > 4 else ""
    return f"{', '.join(files[:4])}{more} {verb} changed since attempt {since} began"
