"""safelaunch check --site: is this folder fit for run folders? Measured, not looked up."""

from __future__ import annotations

import os
from pathlib import Path

import click

from safelaunch.base.model import CHECK_FAILED
from safelaunch.site.io import sitefolder
from safelaunch.site.sitefolder import CAUTION, NOT_SAFE, OK, UNKNOWN, SiteRow, judge
from safelaunch.verbs.common import talk

MARKS = {OK: "ok      ", CAUTION: "caution ", NOT_SAFE: "NOT SAFE", UNKNOWN: "unknown "}


def check_site(folder: str, as_json: bool) -> int:
    """The exit code: 0, or CHECK_FAILED where something is not safe, or could not be measured."""
    path = str(Path(folder).absolute())
    found = sitefolder.measure(path)
    rows = judge(found)
    is_fit = all(row.verdict in (OK, CAUTION) for row in rows)
    if as_json:
        talk.emit_json({"v": 1, "ok": is_fit, "folder": path, "host": os.uname().nodename, "from": None,
                        "rows": [vars(row) for row in rows], "measured": found})
    else:
        _print(path, rows)
    return 0 if is_fit else CHECK_FAILED


def _print(path: str, rows: tuple[SiteRow, ...]) -> None:
    width = max(len(row.check) for row in rows)
    for row in rows:
        means = f": {row.means}" if row.means else ""
        click.echo(talk.clean(f"{MARKS[row.verdict]}  {row.check:<{width}}  {row.measured}{means}"))
    bad = [row.check for row in rows if row.verdict in (NOT_SAFE, UNKNOWN)]
    fit = f"not fit for run folders ({', '.join(bad)})" if bad else "fit for run folders"
    click.echo(talk.clean(f"{path}: {fit}"))
