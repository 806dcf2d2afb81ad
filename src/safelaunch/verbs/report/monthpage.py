"""`report --all` as one HTML file that needs nothing else: a month of a team."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from safelaunch.base.numbers import figure
from safelaunch.report import drawing
from safelaunch.report.month import Month
from safelaunch.status import shares
from safelaunch.verbs.report.reportpage import environment, span_of, style

HOUR_S = 3600.0
MOST_BARS, MOST_RUNS = 16, 500


def render(facts: Month) -> str:
    """The page of a month."""
    causes = [(one.cause, one.node_seconds, _hours(one.node_seconds) + _times(one.failures))
              for one in facts.lost_by_cause if one.node_seconds > 0][:MOST_BARS]
    nodes = [(one.node, one.lost_s, span_of(one.lost_s) + _times(one.failures))
             for one in facts.lost_by_node][:MOST_BARS]
    drawn = {
        "shares": drawing.share_bar(facts.node_seconds, _hours) if sum(facts.node_seconds.values()) else "",
        "causes": drawing.bars(causes, shares.REDONE, "Node-hours lost by cause") if causes else "",
        "nodes": drawing.bars(nodes, shares.HANG, "Time lost by node") if nodes else "",
    }
    return environment().get_template("month.html").render(
        facts=facts, kinds=shares.KINDS, style=style(), hours=_hours, days=_days, figure=_figure,
        drawn={name: Markup(svg) for name, svg in drawn.items()},   # noqa: S704 - report.drawing has escaped it
        table=[(run, Path(run.run_dir).as_uri() if run.run_dir.startswith("/") else "")
               for run in facts.table[:MOST_RUNS]])


def _hours(node_seconds: float) -> str:
    return f"{node_seconds / HOUR_S:,.1f} node-hours"


def _days(days: float) -> str:
    """Node-days, or hours where they are few."""
    return f"{_figure(days)} node-days" if days >= 1 else f"{figure(days * 24, 2)} node-hours"


def _figure(number: float) -> str:
    """Three digits that count, and no exponent: 1.23, 4,750,000."""
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:g}"


def _times(count: int) -> str:
    return f", {count} failure{'s' if count > 1 else ''}" if count else ""
