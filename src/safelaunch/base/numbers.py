"""Numbers as a person writes them: no exponents, no empty decimals."""

from __future__ import annotations

import math

LEAST = 1e-4   # below that an exponent is easier to read


def percent(share: float) -> str:
    """A share or a change: "3.4 %", "12 %", "140 %". What is not all is never called 100 %, nor what is there 0 %."""
    value = 100 * share
    if not math.isfinite(value):
        return f"{value} %"
    if 0 < abs(value) < 0.1:
        return "under 0.1 %" if value > 0 else "-0.1 %"
    if 99.9 < value < 100:
        return "99.9 %"
    return f"{figure(round(value, 1 if abs(value) < 100 else 0), 6)} %"


def figure(value: float, digits: int = 3) -> str:
    """A number with so many digits that count, without an exponent: 0.04, 12.5, 1235."""
    if not math.isfinite(value) or 0 < abs(value) < LEAST:
        return f"{value:.{digits}g}"
    whole = math.floor(math.log10(abs(value))) if value else 0
    decimals = max(0, digits - 1 - whole)
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def count(number: int, what: str) -> str:
    """ "1 step", "12 steps", "no step"."""
    return f"no {what}" if not number else f"{number} {what}" if number == 1 else f"{number} {what}s"


def days(number: float) -> str:
    """A length of time in days, in its own unit: "3.2 d", "5 h", "14 min"."""
    if number >= 1:
        return f"{figure(number)} d"
    if number >= 1 / 24:
        return f"{figure(24 * number, 2)} h"
    return f"{round(1440 * number)} min" if number >= 1 / 1440 else "under 1 min"
