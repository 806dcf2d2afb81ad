"""Names of plugins in a config, looked up at submit (docs/plugins.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safelaunch.config.kinds.kinds import one_of
from safelaunch.extensions import plugins
from safelaunch.extensions.plugins import BUILT_IN_FORMATS, NoPlugin
from safelaunch.launch.launchers import CUSTOM, LAUNCHERS
from safelaunch.nodehealth.checks.names import CHECK_NAMES
from safelaunch.notify.targets import PLUGIN

if TYPE_CHECKING:
    from safelaunch.extensions.pluginvalues import FindPlugin


def look_up(config: dict[str, Any], find_plugin: FindPlugin) -> list[tuple[str, tuple[str, ...], str]]:
    """(key, (), what is wrong) of names that are neither safelaunch's own nor a plugin's. A launcher's words are
    put into the config, in place: no node needs the plugin.
    """
    launch, format = config["launch"], config["resume"]["format"]
    faults: list[tuple[str, tuple[str, ...], str]] = []
    if (name := launch["with"]) is not None and name not in LAUNCHERS:
        from safelaunch.extensions.pluginvalues import LauncherPlugin  # few configs name one

        try:
            found = find_plugin(plugins.LAUNCHERS, name)
            assert isinstance(found, LauncherPlugin)
            launch["with"], launch["call"] = CUSTOM, [*found.call]
        except NoPlugin as error:
            launch["with"] = None
            faults.append(("launch.with", (), f"expected {one_of(tuple(LAUNCHERS))}, or a plugin: {error}"))
    is_own = format is None or format in BUILT_IN_FORMATS
    wanted = [] if is_own else [("resume.format", plugins.FORMATS, format)]
    wanted += [("notify.to", plugins.NOTIFIERS, one.partition(":")[2]) for one in config["notify"]["to"] or ()
               if one.startswith(f"{PLUGIN}:")]
    wanted += [("checks.skip", plugins.CHECKS, one) for one in config["checks"]["skip"] or () if one not in CHECK_NAMES]
    for key, group, name in wanted:
        try:
            find_plugin(group, name)
        except NoPlugin as error:
            own = {plugins.FORMATS: BUILT_IN_FORMATS, plugins.CHECKS: CHECK_NAMES}.get(group)
            faults.append((key, (), f"expected {one_of(own)}, or a plugin: {error}" if own else str(error)))
    return faults
