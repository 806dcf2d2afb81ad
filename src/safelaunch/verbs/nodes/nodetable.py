"""The scores of nodes: a table for people, columns for pipes, objects for programs."""

from __future__ import annotations

import shutil
import textwrap
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import click

from safelaunch.base.numbers import days, figure
from safelaunch.base.plaintext import columns
from safelaunch.nodehealth.ledger import Standing, describe, weight_left
from safelaunch.nodehealth.nodeuse import HALF, NodeRate
from safelaunch.verbs.common import talk, terminal

HEAD = ("node", "score", "excluded until", "evidence", "last", "owner", "runs", "failures")
SHOWN_RUNS = 3
TABLE_WIDTH = 130   # below that the table's columns leave too little to the reason


def as_json(one: Standing, now: float, half_life_s: float, rate: NodeRate | None = None) -> dict[str, object]:
    """A node of `nodes --json`."""
    return {
        "rate": None if rate is None else {
            "failures": rate.failures, "node_days": round(rate.days, 3), "expected": round(rate.expected, 4),
            "posterior_per_day": round((rate.failures + HALF) / rate.days, 6),
            "probability": round(rate.probability, 4)},
        "node": one.node, "score": round(one.score, 3), "excluded_until_t": one.until_t, "why": describe(one),
        "void": one.void, "owners": _owners(one), "runs": _runs(one),
        "evidence": [{
            "t": known.t, "kind": known.kind, "why": known.why, "owner": known.owner, "run": known.run or None,
            "attempt": known.attempt, "fingerprint": known.fingerprint, "counts": known in one.counted,
            "weight": round(weight_left(known, now, half_life_s), 3),
        } for known in one.known],
    }


def fleet_as_json(rates: Collection[NodeRate]) -> dict[str, object]:
    """What the rates are compared with: all nodes with known days of use."""
    return {"nodes": len(rates), "failures": sum(rate.failures for rate in rates),
            "node_days": round(sum(rate.days for rate in rates), 3)}


def show(standings: Sequence[Standing], now: float, rates: Mapping[str, NodeRate], gone: Collection[str] = ()) -> None:
    """Print them: a table on a terminal, else columns, the reason last. `gone`: unknown to the cluster."""
    if not standings:
        return
    rows = [(one, _cells(one, now, gone, rates.get(one.node))) for one in standings]
    if talk.is_for_person():
        width = shutil.get_terminal_size().columns
        _print_table(rows, gone) if width >= TABLE_WIDTH else _print_blocks(rows, gone, width)
        return
    # The reason last: it has spaces of its own.
    for line in columns([(*row[:4], *row[5:], row[4]) for row in (HEAD, *(cells for _, cells in rows))]):
        click.echo(line)


def _cells(one: Standing, now: float, gone: Collection[str], rate: NodeRate | None) -> tuple[str, ...]:
    last = one.known[0]
    until = f"{talk.moment(one.until_t)} ({talk.span(one.until_t - now)})" if one.until_t is not None else "-"
    until = "- (not in this cluster any more)" if one.node in gone else until
    kinds = Counter(known.kind for known in one.known)
    evidence = ", ".join(f"{kind} ×{count}" if count > 1 else kind for kind, count in kinds.most_common())
    why = f"{last.why} ({talk.span(now - last.t)} ago)" + ("; the same cause elsewhere, too: void" if one.void else "")
    failures = "-" if rate is None else f"{rate.failures} in {days(rate.days)}"
    if rate is not None and rate.failures:
        failures += f", {figure(rate.expected, 2)} expected"
    cells = (one.node, f"{one.score:.1f}", until, evidence, why, ", ".join(_owners(one)), _some(_runs(one)), failures)
    return tuple(talk.clean(cell) for cell in cells)


def _owners(one: Standing) -> list[str]:
    return list(dict.fromkeys(known.owner for known in one.known))


def _runs(one: Standing) -> list[str]:
    return list(dict.fromkeys(known.run for known in one.known if known.run))


def _some(runs: list[str]) -> str:
    more = f" +{len(runs) - SHOWN_RUNS}" if len(runs) > SHOWN_RUNS else ""
    return ", ".join(runs[:SHOWN_RUNS]) + more if runs else "-"


def _print_blocks(rows: Sequence[tuple[Standing, tuple[str, ...]]], gone: Collection[str], width: int) -> None:
    for one, cells in rows:
        node, score, until, evidence, why, owner, runs, failures = cells
        kept = until if until.startswith("-") else f"excluded until {until}"
        head = f"{node}  score {score}, {kept.removeprefix('- ') if kept != '-' else 'not excluded'}"
        rest = f"{evidence}: {why}; told by {owner}" + (f", runs {runs}" if runs != "-" else "")
        rest += f"; failures: {failures}" if failures != "-" else ""
        is_red = one.until_t is not None and one.node not in gone and terminal.has_colour()
        click.echo(terminal.styled(head, "red" if is_red else ""))
        click.echo(textwrap.fill(rest, max(width, 40), initial_indent="    ", subsequent_indent="    ",
                                 break_on_hyphens=False))


def _print_table(rows: Sequence[tuple[Standing, tuple[str, ...]]], gone: Collection[str]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in HEAD:
        table.add_column(name, justify="right" if name == "score" else "left", no_wrap=name in ("node", "score"),
                         overflow="fold", ratio=None)
    for one, cells in rows:
        style = "red" if one.until_t is not None and one.node not in gone else ""
        table.add_row(*(Text(cell, style=style if index < 2 else "") for index, cell in enumerate(cells)))
    Console(highlight=False).print(table)
