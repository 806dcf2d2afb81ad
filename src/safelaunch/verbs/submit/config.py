"""safelaunch config: the resolved config, and where each value came from."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click

from safelaunch.base.plaintext import clean_json, clean_lines
from safelaunch.config.io.configfiles import read_config
from safelaunch.config.keys import KEYS
from safelaunch.config.kinds.kinds import Duration
from safelaunch.config.resolve import Origin, Resolved
from safelaunch.config.starter import render_value
from safelaunch.config.values import render_duration
from safelaunch.verbs.submit.trainfile import TrainFileCommand, split_rest, train_file_arguments


@click.command(cls=TrainFileCommand)
@train_file_arguments
@click.option("--origin", is_flag=True, help="Show the origin of each value.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, with origins.")
def command(file: str, rest: tuple[str, ...], origin: bool, as_json: bool) -> int:
    """Show the config that train.yaml, the layers below it and the command line make."""
    resolved = read_config(file, *split_rest(rest))
    if as_json:
        origins = {key: place._asdict() for key, place in resolved.origins.items()}
        shown = json.dumps({"v": 1, "config": resolved.config, "origins": origins}, ensure_ascii=False, indent=2)
        click.echo("\n".join(map(clean_json, shown.split("\n"))))
    else:
        click.echo(clean_lines("\n".join(_lines(resolved, with_origin=origin))))
    return 0


def _lines(resolved: Resolved, *, with_origin: bool) -> Iterator[str]:
    """The config as a train.yaml again, one value a line."""
    for section, value in resolved.config.items():
        if section == "own":   # what the script says of its job: no key of a train.yaml
            continue
        if not isinstance(value, dict):
            yield _line(section, section, value, resolved, with_origin)
        elif not value:
            yield f"{section}: {{}}"
        else:
            yield f"{section}:"
            for key, leaf in value.items():
                path = f"{section}.{key}"
                yield "  " + _line(path, key, leaf, resolved, with_origin)
                for name in leaf if with_origin and isinstance(leaf, dict) else ():
                    if f"{path}.{name}" in resolved.origins:
                        yield f"    # {name}: {_place(resolved.origins[f'{path}.{name}'])}"


def _line(path: str, key: str, value: object, resolved: Resolved, with_origin: bool) -> str:
    known = KEYS.get(path)
    if isinstance(value, float) and known is not None and isinstance(known.kind, Duration):
        text = f"{key}: {render_duration(value)}"
    else:
        text = f"{key}: {render_value(path, value)}"
    return f"{text}  # {_place(resolved.origins[path])}" if with_origin else text


def _place(origin: Origin) -> str:
    if not origin.line:   # of a variable its name is the file's
        return origin.layer if origin.layer != "environment" else f"{origin.file} (environment)"
    return f"{origin.file}:{origin.line}:{origin.column} ({origin.layer})"
