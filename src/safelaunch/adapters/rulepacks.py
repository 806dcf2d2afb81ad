"""Rule packs of a machine: files of the site and of the user, and packages with an entry point.

Where there are none, neither a YAML parser nor importlib.metadata is imported: that saves 60 ms of every `why`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safelaunch.errors import ConfigError, Problem

if TYPE_CHECKING:
    from importlib import metadata

    from safelaunch.core.why.findings import Rule  # submit has no rules where there are no packs

SITE_FOLDER = "/etc/safelaunch/rules.d"
GROUP = "safelaunch.rules"     # an entry point that names a mapping, or a function without arguments that gives one


def load_packs(environ: Mapping[str, str] | None = None) -> tuple[Rule, ...]:
    """The rules of every pack of this machine and user; raises ConfigError with every problem of all of them.

    Files: those of SAFELAUNCH_RULES (joined by ":"), else *.yaml of the site's folder and of the user's.
    """
    known = os.environ if environ is None else environ
    rules: list[Rule] = []
    problems: list[Problem] = []
    packs: list[tuple[str, Callable[[], tuple[Rule, ...]]]] = [*_files(known), *_entry_points()]
    for source, load in packs:
        try:
            found = load()
        except ConfigError as error:
            problems += error.problems
            continue
        taken = {rule.id for rule in rules}
        problems += [Problem(source, 0, 0, rule.id, "is taken by another pack") for rule in found if rule.id in taken]
        rules += found
    if problems:
        raise ConfigError(problems)
    return tuple(rules)


def dump(rules: Iterable[Rule]) -> list[dict[str, Any]]:
    """The rules as JSON, without their samples; their bytes as Latin-1."""
    return [{key: value for key, value in asdict(rule).items() if "sample" not in key}
            | {"anchor": [word.decode("latin-1") for word in rule.anchor], "pattern": rule.pattern.decode("latin-1")}
            for rule in rules]


def undump(kept: object) -> tuple[Rule, ...]:
    """The rules from `dump`; malformed ones, as a later version may write them, are left out."""
    from safelaunch.core.why.findings import Rule

    rules: list[Rule] = []
    for one in kept if isinstance(kept, list) else []:
        try:
            anchor = tuple(word.encode("latin-1") for word in one["anchor"])
            rules.append(Rule(**{**one, "anchor": anchor, "pattern": one["pattern"].encode("latin-1")}))
            re.compile(rules[-1].pattern)
        except (KeyError, TypeError, AttributeError, UnicodeEncodeError):
            continue
        except re.error:
            rules.pop()
    return tuple(rules)


class _File:
    """A pack in a YAML file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self) -> tuple[Rule, ...]:
        from safelaunch.core.config.yamltext import TEXT_MAX_BYTES
        from safelaunch.core.why.rulepacks import read_pack

        try:
            with self.path.open("rb") as stream:
                text = stream.read(TEXT_MAX_BYTES + 1).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError([Problem(str(self.path), 0, 0, "", f"cannot be read: {error}")]) from error
        return read_pack(str(self.path), text)


class _EntryPoint:
    """A pack of a package. Whatever its code raises is reported as that package's fault."""

    def __init__(self, entry: metadata.EntryPoint) -> None:
        self.entry = entry

    def __call__(self) -> tuple[Rule, ...]:
        from safelaunch.core.why.rulepacks import parse_pack

        source = f"entry point {self.entry.name}"
        try:
            raw = self.entry.load()
            raw = raw() if callable(raw) else raw
        except Exception as error:   # foreign code
            raise ConfigError([Problem(source, 0, 0, "", f"cannot be loaded: {error!r}")]) from error
        return parse_pack(source, raw)


def _files(environ: Mapping[str, str]) -> Iterator[tuple[str, _File]]:
    named = environ.get("SAFELAUNCH_RULES")
    if named is not None:
        paths = [Path(name) for name in named.split(":") if name]
    else:
        folders = (Path(SITE_FOLDER), _user_folder(environ))
        paths = [path for folder in folders for path in sorted(folder.glob("*.yaml"))]
    for path in paths:
        yield str(path), _File(path)


def _user_folder(environ: Mapping[str, str]) -> Path:
    """Beside the user's own defaults (adapters.configfiles.user_file)."""
    base = environ.get("XDG_CONFIG_HOME", "")
    base = base if base.startswith("/") else f"{environ.get('HOME') or '/nonexistent'}/.config"
    return Path(base) / "safelaunch" / "rules.d"


def _entry_points() -> Iterator[tuple[str, _EntryPoint]]:
    if not any(map(_may_have_packs, sys.path)):
        return
    from importlib import metadata

    for entry in metadata.entry_points(group=GROUP):
        yield f"entry point {entry.name}", _EntryPoint(entry)


def _may_have_packs(folder: str) -> bool:
    """Whether a package in a folder of sys.path names the group; one in a zip file may."""
    try:
        names = [entry.path for entry in os.scandir(folder or ".") if entry.name.endswith((".dist-info", ".egg-info"))]
    except NotADirectoryError:
        return not folder.endswith(f"python{sys.version_info[0]}{sys.version_info[1]}.zip")
    except OSError:
        return False
    for name in names:
        try:
            if GROUP.encode() in Path(name, "entry_points.txt").read_bytes():
                return True
        except OSError:
            continue
    return False
