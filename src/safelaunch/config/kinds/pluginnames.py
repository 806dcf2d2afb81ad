"""Names of plugins in a config, looked up at submit (docs/plugins.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.config.kinds.kinds import one_of
from safelaunch.extensions import plugins
from safelaunch.extensions.plugins import BUILT_IN_FORMATS, NoPlugin
from safelaunch.extensions.pluginvalues import LauncherPlugin
from safelaunch.launch.launchers import CUSTOM, LAUNCHERS
from safelaunch.launch.settings import Settings
from safelaunch.nodehealth.checks.names import CHECK_NAMES
from safelaunch.notify.targets import PLUGIN

if TYPE_CHECKING:
    from safelaunch.extensions.pluginvalues import FindPlugin


def look_up(settings: Settings, find_plugin: FindPlugin) -> tuple[Settings, list[tuple[str, tuple[str, ...], str]]]:
    """The settings with the words of a plugin's launcher in its name's place: no node needs the plugin. And (key, (),
    what is wrong) of names that are neither safelaunch's own nor a plugin's.
    """
    launch, format = settings.launch, settings.resume.format
    faults: list[tuple[str, tuple[str, ...], str]] = []
    if launch.by and launch.by not in LAUNCHERS:
        try:
            found = find_plugin(plugins.LAUNCHERS, launch.by)
            assert isinstance(found, LauncherPlugin)
            launch = launch._replace(by=CUSTOM, call=tuple(found.call))
        except NoPlugin as error:
            launch = launch._replace(by="")
            faults.append(("launch.with", (), f"expected {one_of(tuple(LAUNCHERS))}, or a plugin: {error}"))
    wanted = [] if format in BUILT_IN_FORMATS else [("resume.format", plugins.FORMATS, format)]
    wanted += [("notify.to", plugins.NOTIFIERS, one.partition(":")[2]) for one in settings.notify.to
               if one.startswith(f"{PLUGIN}:")]
    wanted += [("checks.skip", plugins.CHECKS, one) for one in settings.checks.skip if one not in CHECK_NAMES]
    for key, group, name in wanted:
        try:
            find_plugin(group, name)
        except NoPlugin as error:
            own = {plugins.FORMATS: BUILT_IN_FORMATS, plugins.CHECKS: CHECK_NAMES}.get(group)
            faults.append((key, (), f"expected {one_of(own)}, or a plugin: {error}" if own else str(error)))
    return settings.with_(launch=launch), faults
