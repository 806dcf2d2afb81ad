"""safelaunch policy: what follows which failure."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from safelaunch.config.io import configfiles
from safelaunch.config.keys import KEYS
from safelaunch.config.resolve import ConfigLayer, Origin, resolve
from safelaunch.decide.turn import policytext
from safelaunch.errors import UsageError
from safelaunch.run.io.runfolder import Run
from safelaunch.verbs.common import runs, talk

_OVERRIDE = re.compile(r"[a-z_]{1,64}(\.[^\s=/.]{1,64}){0,16}=")
# Keys that have a part in what follows a failure.
_SECTIONS = ("restart.", "suspects.", "preserve_site.", "resume.keep_trying")


@dataclass(frozen=True)
class PolicyArguments:
    """The sorted command line: at most one train.yaml, runs, key=value."""

    file: str | None
    runs: tuple[str, ...]
    overrides: tuple[str, ...]


@click.command()
@click.argument("words", nargs=-1, metavar="[FILE|RUN]... [KEY=VALUE]...")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, documented in docs/verbs.md.")
def command(words: tuple[str, ...], as_json: bool) -> int:
    """Print what follows which failure: the defaults, those of a train.yaml, or a run's own."""
    given = _sort(words)
    if len(given.runs) + (given.file is not None) > 1:
        raise UsageError("one FILE or RUN at a time")
    config, places, of = _run_policy(given) if given.runs else _file_policy(given)
    shown = policytext.show(config, places)
    if as_json:
        talk.emit_json(policytext.to_json(shown, of))
    else:
        width = shutil.get_terminal_size().columns if talk.is_for_person() else None
        click.echo("\n".join(map(talk.clean, (f"policy of {of}", "", *policytext.render(shown, width)))))
    return 0


def _sort(words: Sequence[str]) -> PolicyArguments:
    """An existing file is a train.yaml, an existing folder a run."""
    kinds: list[str] = runs.ask(lambda: [_kind(word) for word in words], " ".join(words)) if words else []
    by_kind = {kind: tuple(word for word, one in zip(words, kinds, strict=True) if one == kind)
               for kind in ("file", "run", "override")}
    if len(by_kind["file"]) > 1:
        raise UsageError(f"two train.yaml at once: {' and '.join(by_kind['file'][:2])}")
    missing = next((word for word in by_kind["run"] if word.endswith((".yaml", ".yml"))), None)
    if missing is not None:
        raise UsageError(f"{missing}: no such file", hint="a first one: safelaunch init")
    return PolicyArguments(next(iter(by_kind["file"]), None), by_kind["run"], by_kind["override"])


def _kind(word: str) -> str:
    path = Path(word)
    if path.is_file():
        return "file"
    return "override" if _OVERRIDE.match(word) and not path.exists() else "run"


def _file_policy(given: PolicyArguments) -> tuple[Mapping[str, Any], Mapping[str, str], str]:
    """Config, where its keys were written, whose it is: of a train.yaml, or of all that has none."""
    if given.file is not None:
        sources, base = configfiles.read_sources(given.file, os.environ), str(Path(given.file).absolute().parent)
        of = given.file
    else:
        # `command` is required, and there is no train.yaml that could give it.
        needed = ConfigLayer("file", "defaults", "command: 'true'\n")
        sources, base, of = [*configfiles.read_sources(None, os.environ), needed], "", "the defaults"
    config = resolve(sources, given.overrides, os.environ, base_dir=base, find_plugin=configfiles.find_plugin).config
    return config, policytext.places_of(sources, given.overrides), of


def _run_policy(given: PolicyArguments) -> tuple[Mapping[str, Any], Mapping[str, str], str]:
    run = runs.load(given.runs[0])
    config = _overridden(run.meta["config"], given.overrides)
    places = {key: policytext.place_of(origin) for key, origin in _origins(run)}
    places |= policytext.places_of([], given.overrides)
    return config, places, f"{run.plan.name} in {run.dir}"


def _overridden(config: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """A run's config with `key=value` of what has a part in the policy; raises ConfigError or UsageError."""
    changed: dict[str, Any] = {**config, **{name: dict(config.get(name) or {}) for name in (
        "restart", "suspects", "preserve_site", "resume")}}
    if not overrides:
        return changed
    wanted = resolve([ConfigLayer("file", "the run", "command: 'true'\n")], overrides, {}).config
    for override in overrides:
        path = override.partition("=")[0]
        section, _, leaf = path.partition(".")
        if not path.startswith(_SECTIONS) or not (path in KEYS or path.startswith("restart.policy.")):
            known = ", ".join(key for key in KEYS if key.startswith(_SECTIONS))
            raise UsageError(f"{path} does not change what follows a failure",
                             hint=f"these do: restart.policy.CATEGORY, {known}")
        if not leaf.startswith("policy"):
            changed[section][leaf] = wanted[section][leaf]
            continue
        rows, category = dict(changed["restart"].get("policy") or {}), leaf.partition(".")[2]
        new = wanted["restart"]["policy"] or {}
        rows = {**rows, **new} if new or category else {}
        if category and category not in new:
            rows.pop(category, None)   # restart.policy.network= goes back to the default
        changed["restart"]["policy"] = rows
    return changed


def _origins(run: Run) -> Iterator[tuple[str, Origin]]:
    """Of run.json; those that another version has written in another form are left out."""
    origins = run.meta.get("origins")
    for key, raw in origins.items() if isinstance(origins, dict) else ():
        try:
            yield key, Origin(str(raw["layer"]), str(raw["file"]), int(raw["line"]), int(raw["column"]))
        except (KeyError, TypeError, ValueError):
            continue
