"""Plugins of this interpreter: packages with an entry point of a group of extensions.plugins.

All are loaded in disposable children with a deadline: one that is broken, hangs or prints harms nobody. Data comes back
as plain values; code is loaded by the child that runs it. Where no installed package names safelaunch,
importlib.metadata is not imported: that saves `why` and `submit` 60 ms.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.base.io.cputime import TookTooLong, within
from safelaunch.base.io.probe import run_in_child
from safelaunch.base.plaintext import clean
from safelaunch.errors import ConfigError
from safelaunch.extensions import plugins, pluginvalues
from safelaunch.extensions.plugins import NoPlugin
from safelaunch.launch.launchers import LAUNCHERS

if TYPE_CHECKING:
    from importlib import metadata

    from safelaunch.extensions.pluginvalues import CheckPlugin, LauncherPlugin
    from safelaunch.why.findings import Rule

LOAD_S = 10.0      # a first import from a busy shared filesystem takes seconds
MOST_REASON = 300
_MARK = b"[safelaunch."
_TAKEN = {plugins.LAUNCHERS: tuple(LAUNCHERS), plugins.FORMATS: plugins.BUILT_IN_FORMATS}


class FoundPlugin(NamedTuple):
    """An entry point, and the package that has it; `taken_by`: who has the name already, "" = nobody."""

    group: str
    name: str
    distribution: str
    version: str
    entry: metadata.EntryPoint
    taken_by: str = ""


def list_plugins(group: str) -> list[FoundPlugin]:
    """All of a group, by name; of two with one name the first package by its name counts. Loads none."""
    see_packages()
    if not any(group.encode() in text for text in _entry_texts()):
        return []
    from importlib import metadata

    rows = sorted((entry.name, entry.dist.name if entry.dist else "?", entry.dist.version if entry.dist else "?", entry)
                  for entry in metadata.entry_points(group=group))
    owners = dict.fromkeys(_TAKEN.get(group, ()), "safelaunch")
    return [FoundPlugin(group, *row, taken_by=_owner(owners, row[0], row[1])) for row in rows]


def _owner(owners: dict[str, str], name: str, distribution: str) -> str:
    """Who has the name before this one; else it is this one's from now on."""
    if name in owners:
        return owners[name]
    owners[name] = distribution
    return ""


def find(group: str, name: str) -> CheckPlugin | LauncherPlugin | None:
    """The plugin of that name: its value, if it is data. Raises NoPlugin where there is none, or it is broken."""
    found = next((one for one in list_plugins(group) if one.name == name and not one.taken_by), None)
    if found is None:
        plugins.no_plugins(group, name)
    if group in (plugins.CHECKS, plugins.LAUNCHERS):
        try:
            return _read_value(found)
        except NoPlugin as error:
            raise NoPlugin(f'plugin "{name}" is broken: {error}') from error
    if why := why_broken(found):
        raise NoPlugin(f'plugin "{name}" is broken: {why}')
    return None


def _read_value(plugin: FoundPlugin) -> CheckPlugin | LauncherPlugin:
    read = pluginvalues.read_check if plugin.group == plugins.CHECKS else pluginvalues.read_launcher
    return read(load_data(plugin))


def load_data(plugin: FoundPlugin) -> Mapping[str, Any]:
    """The mapping that it names or gives, as plain values; raises NoPlugin."""
    return _in_child(plugin, lambda: _plain(plugin.entry.load()))


def load_checks() -> tuple[dict[str, CheckPlugin], list[str]]:
    """The checks of nodes by name, and what is to be said of those that are left out."""
    checks: dict[str, CheckPlugin] = {}
    notes = []
    for found in list_plugins(plugins.CHECKS):
        try:
            if found.taken_by or len(checks) == plugins.MOST_CHECKS:
                raise NoPlugin(_taken(found) if found.taken_by else f"there are more than {plugins.MOST_CHECKS}")
            checks[found.name] = pluginvalues.read_check(load_data(found))
        except NoPlugin as error:
            notes.append(left_out(found, error))
    return checks, notes


def load_rules(plugin: FoundPlugin) -> tuple[Rule, ...]:
    """The rules of a package; raises NoPlugin."""
    from safelaunch.why.rulepacks import parse_pack

    try:
        raw = load_data(plugin)
        return within(LOAD_S, lambda: parse_pack(plugin.name, raw))
    except TookTooLong as error:
        raise NoPlugin(f"trying its patterns on their samples takes {error}") from error
    except ConfigError as error:
        raise NoPlugin("; ".join(f"{one.key}: {one.text}".removeprefix(": ") for one in error.problems)) from error


def left_out(plugin: FoundPlugin, error: NoPlugin) -> str:
    """What people are told of one that is not used."""
    return f"the plugin {plugin.name} of {plugin.distribution} ({plugin.group}) is left out: {error}"


def load_code(group: str, name: str) -> Any:
    """What an entry point names, in this process: for a disposable child. Raises NoPlugin."""
    found = next((one for one in list_plugins(group) if one.name == name and not one.taken_by), None)
    if found is None:
        raise NoPlugin(f"no plugin {name} ({group}) for {sys.executable} on this host")
    try:
        value = found.entry.load()
    except Exception as error:   # foreign code
        raise NoPlugin(f"the plugin {name} cannot be loaded: {_tell(error)}") from error
    if not _has_shape(group, value):
        raise NoPlugin(f"the plugin {name} is no {plugins.GROUPS[group]}")
    return value


def why_broken(plugin: FoundPlugin) -> str:
    """Why it cannot be used; "" = it can."""
    try:
        if plugin.group == plugins.RULES:
            load_rules(plugin)
        elif plugin.group in (plugins.CHECKS, plugins.LAUNCHERS):
            _read_value(plugin)
        else:
            _require_for_jobs(plugin)
            _in_child(plugin, lambda: {"type": type(load_code(plugin.group, plugin.name)).__name__})
    except NoPlugin as error:
        return str(error)
    return ""


def state_of(plugin: FoundPlugin) -> tuple[str, str]:
    """(used, taken or broken; why)."""
    if plugin.taken_by:
        return "taken", _taken(plugin)
    why = why_broken(plugin)
    return ("broken", why) if why else ("used", "")


def see_packages() -> None:
    """Look for packages where the interpreter has them: a supervisor is started without (-I -S). For a child of it."""
    if sys.flags.no_site and not any(name.endswith("-packages") for name in sys.path):
        import site

        site.main()


def _require_for_jobs(plugin: FoundPlugin) -> None:
    """Raise NoPlugin where supervisors, which are started in isolated mode (-I), do not see the package."""
    import site

    at = str(plugin.entry.dist.locate_file("")).rstrip("/") if plugin.entry.dist else ""
    named = [os.path.abspath(one) for one in os.environ.get("PYTHONPATH", "").split(":") if one]   # noqa: PTH100
    if at in named or at == site.getusersitepackages():
        raise NoPlugin(f"jobs do not see packages of PYTHONPATH and ~/.local: install it into {sys.prefix}")


def _taken(plugin: FoundPlugin) -> str:
    return f"the name {plugin.name} is taken by {plugin.taken_by}"


def _in_child(plugin: FoundPlugin, load: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    def told() -> dict[str, Any]:
        try:
            return {"value": load()}
        except Exception as error:   # noqa: BLE001 - foreign code, in the child
            return {"why": _tell(error)}

    answer = run_in_child(told, LOAD_S)
    if answer.late:
        raise NoPlugin(f"it took longer than {LOAD_S:g} s")
    if answer.value is None or "why" in answer.value:
        raise NoPlugin(answer.value["why"] if answer.value else clean(answer.error))
    value: Mapping[str, Any] = answer.value["value"]
    return value


def _plain(value: Any) -> Mapping[str, Any]:
    """The value, of a function its answer; dataclasses as mappings."""
    value = value() if callable(value) else value
    value = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    if not isinstance(value, Mapping):
        raise NoPlugin(f"expected a mapping or a dataclass of safelaunch.plugins, got {type(value).__name__}")
    return value


def _tell(error: BaseException) -> str:
    return clean(str(error) if isinstance(error, NoPlugin) else f"{type(error).__name__}: {error}")[:MOST_REASON]


def _has_shape(group: str, value: Any) -> bool:
    if group == plugins.FORMATS:
        return all(callable(getattr(value, name, None)) for name in ("candidates", "judge"))
    return callable(value)


@cache
def _entry_texts() -> tuple[bytes, ...]:
    """The entry points of packages in sys.path that name a group of safelaunch; a zip file may have any."""
    return tuple(text for folder in sys.path for text in _texts_in(folder) if _MARK in text)


def _texts_in(folder: str) -> list[bytes]:
    try:
        names = [entry.path for entry in os.scandir(folder or ".") if entry.name.endswith((".dist-info", ".egg-info"))]
    except NotADirectoryError:
        is_own = folder.endswith(f"python{sys.version_info[0]}{sys.version_info[1]}.zip")
        return [] if is_own else [b"\n".join(f"[{group}]".encode() for group in plugins.GROUPS)]
    except OSError:
        return []
    found = []
    for name in names:
        try:
            with open(f"{name}/entry_points.txt", "rb") as file:   # noqa: PTH123 - of a hundred packages
                found.append(file.read())
        except OSError:
            continue
    return found
