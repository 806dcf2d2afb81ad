"""Keys of train.yaml that `command` or `setup` asks the shell for: only other keys have them expanded, so the shell of
a node finds nothing there. (Two runs shared one folder: `--out ckpt/${name}` was `--out ckpt/` for both.)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from safelaunch.base.yaml.yamlnodes import Origin
from safelaunch.launch.settings import Settings

_USED = re.compile(r"(?<!\\)\$(?:\{([a-z_]+)((?:\.\w+)*)\}|([a-z_]+)\b)")
_QUOTED = re.compile(r"'[^']*'")


def unexpanded(settings: Settings, origins: Mapping[str, Origin], keys: Collection[str],
               environ: Collection[str]) -> list[str]:
    """A sentence for each key that is asked for, is in no environment, and is set by no line of the shell's."""
    texts = {"setup": settings.setup, "command": settings.command}
    script = "\n".join(texts.values())
    found = []
    for where, text in texts.items():
        for match in dict.fromkeys(map(_words, _USED.finditer(_QUOTED.sub("''", text)))):
            name, inner = match
            is_set = name in environ or name in settings.env or _is_set(name, script)
            if name in keys and (inner or not is_set):
                found.append((where, name, inner))
    return [_told(where, name + inner, origins.get(where)) for where, name, inner in found]


def _words(match: re.Match[str]) -> tuple[str, str]:
    return match[1] or match[3], match[2] or ""


def _is_set(name: str, script: str) -> bool:
    return re.search(rf"(?:^|[\s;&(]){name}\+?=|\bfor {name}\b|\bread\b[^\n;]{{0,200}}\b{name}\b", script) is not None


def _told(where: str, key: str, place: Origin | None) -> str:
    variable = key.replace(".", "_").upper()
    at = f"{place.file}:{place.line}: " if place is not None and place.line else ""
    return (f"{at}{where}: ${{{key}}} is {'no variable of a shell' if '.' in key else 'empty on the nodes'}, because "
            f"keys are not expanded in {where}: write env: {{{variable}: \"${{{key}}}\"}}, and ${{{variable}}} here")
