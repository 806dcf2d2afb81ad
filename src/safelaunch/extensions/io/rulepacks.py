"""Rule packs of a machine: files of the site and of the user, and plugins.

Where there are none, no YAML parser is imported: that saves time of every `why`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safelaunch.base.io import sharedfile
from safelaunch.base.io.cputime import TookTooLong, within
from safelaunch.errors import ConfigError, Problem
from safelaunch.extensions.io import plugins
from safelaunch.extensions.plugins import RULES, NoPlugin
from safelaunch.why.findings import Rule

if TYPE_CHECKING:
    from safelaunch.why.findings import Rule  # submit has no rules where there are no packs

MOST_PACKS = 100   # files
LOAD_S = 3.0       # of processor time, for one of 1 MiB
SITE_FOLDER = "/etc/safelaunch/rules.d"


def load_packs(environ: Mapping[str, str] | None = None,
               say: Callable[[str], None] = lambda _: None) -> tuple[Rule, ...]:
    """The rules of every pack of this machine and user; raises ConfigError with every problem of all files. A package
    that is broken is told by `say` and left out.

    Files: those of SAFELAUNCH_RULES (joined by ":"), else *.yaml of the site's folder and of the user's.
    """
    known = os.environ if environ is None else environ
    rules: list[Rule] = []
    problems: list[Problem] = []
    for number, (source, load) in enumerate(_files(known)):
        if number == MOST_PACKS:
            raise ConfigError([Problem(source, 0, 0, "", f"more than {MOST_PACKS} rule packs; join some of them")])
        try:
            found = within(LOAD_S, load)
        except ConfigError as error:
            problems += error.problems
            continue
        except TookTooLong as error:   # a pattern on its own sample
            problems.append(Problem(source, 0, 0, "", f"trying its patterns on their samples takes {error}"))
            continue
        taken = {rule.id for rule in rules}
        problems += [Problem(source, 0, 0, rule.id, "is taken by another pack") for rule in found if rule.id in taken]
        rules += found
    if problems:
        raise ConfigError(problems)
    for plugin in plugins.list_plugins(RULES):
        try:
            rules += _new(plugins.load_rules(plugin), {rule.id for rule in rules})
        except NoPlugin as error:
            say(plugins.left_out(plugin, error))
    return tuple(rules)


def _new(found: tuple[Rule, ...], taken: set[str]) -> tuple[Rule, ...]:
    """The same; raises NoPlugin where another pack has one of the names."""
    if twice := next((rule.id for rule in found if rule.id in taken), None):
        raise NoPlugin(f"{twice} is taken by another pack")
    return found


def dump(rules: Iterable[Rule]) -> list[dict[str, Any]]:
    """The rules as JSON, without their samples; their bytes as Latin-1."""
    return [{key: value for key, value in asdict(rule).items() if "sample" not in key}
            | {"anchor": [word.decode("latin-1") for word in rule.anchor], "pattern": rule.pattern.decode("latin-1")}
            for rule in rules]


def undump(kept: object) -> tuple[Rule, ...]:
    """The rules from `dump`; malformed ones, as a later version may write them, are left out."""
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
        from safelaunch.base.yaml.yamltext import TEXT_MAX_BYTES
        from safelaunch.why.rulepacks import read_pack

        try:
            with os.fdopen(sharedfile.open_log(self.path), "rb") as stream:   # no pipe of a group's folder
                text = stream.read(TEXT_MAX_BYTES + 1).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError([Problem(str(self.path), 0, 0, "", f"cannot be read: {error}")]) from error
        return read_pack(str(self.path), text)


def _files(environ: Mapping[str, str]) -> Iterator[tuple[str, _File]]:
    named = environ.get("SAFELAUNCH_RULES")
    if named is not None:
        paths = [Path(name) for name in named.split(":") if name]
    else:
        folders = (Path(SITE_FOLDER), _user_folder(environ))
        paths = [path for folder in folders if folder.is_dir()
                 for path in sorted(folder.glob("*.yaml"))]
    for path in paths[:MOST_PACKS + 1]:
        yield str(path), _File(path)


def _user_folder(environ: Mapping[str, str]) -> Path:
    """Beside the user's own defaults (config.io.configfiles.user_file)."""
    base = environ.get("XDG_CONFIG_HOME", "")
    base = base if base.startswith("/") else f"{environ.get('HOME') or '/nonexistent'}/.config"
    return Path(base) / "safelaunch" / "rules.d"
