"""A figure of a benchmark, and the table that people read."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One row: what was measured how often, beside which peer; `target` is what issue 2 asks of it, as text."""

    name: str
    unit: str
    values: tuple[float, ...]
    target: str = ""
    peer: str = ""
    ratio: float | None = None
    max_ratio: float | None = None

    @property
    def median(self) -> float:
        """The value that counts."""
        return statistics.median(self.values)

    @property
    def is_missed(self) -> bool:
        """Whether a ratio to a peer, measured in the same run, is above what was promised. Times alone never fail."""
        return self.max_ratio is not None and self.ratio is not None and self.ratio > self.max_ratio

    @property
    def spread(self) -> str:
        """The smallest and the largest value."""
        return f"{_short(min(self.values))} – {_short(max(self.values))}" if len(self.values) > 1 else ""


def ratio_of_pairs(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Median of the ratios of values measured one right after the other: a busy moment of the machine hits both."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` (0..1) of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def render_table(title: str, figures: Sequence[Figure]) -> str:
    """The figures as a Markdown table."""
    rows = [("figure", "value", "min – max", "n", "target", "peer", "ratio")]
    rows += [(figure.name, f"{_short(figure.median)} {figure.unit}", figure.spread, str(len(figure.values)),
              figure.target, figure.peer, _ratio_text(figure)) for figure in figures]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [[word.ljust(width) for word, width in zip(row, widths, strict=True)] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in padded]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(["", f"### {title}", "", *lines, ""])


def _ratio_text(figure: Figure) -> str:
    if figure.ratio is None:
        return ""
    return f"{figure.ratio:.3g} MISSED (≤ {figure.max_ratio:g})" if figure.is_missed else f"{figure.ratio:.3g}"


def _short(value: float) -> str:
    """Three digits, more before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
