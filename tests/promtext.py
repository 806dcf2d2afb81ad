"""A strict reader of Prometheus' text format, version 0.0.4, written from its description: what it refuses, a scraper
may refuse. https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import re

NAME = "[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\n"])*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)?\}})? ([+-]?(?:[0-9.]+(?:e[+-]?[0-9]+)?|Inf|NaN))")
UNITS = ("_seconds", "_total", "_ratio", "_info", "_steps", "_step", "_nodes", "_state", "_excluded", "_used",
         "_budget", "_code")
Labels = frozenset[tuple[str, str]]


def parse(text: str) -> dict[str, dict[Labels, float]]:
    """family → labels → value; AssertionError for a line that the format does not have."""
    assert text == "" or text.endswith("\n"), "the last line has no end"
    found: dict[str, dict[Labels, float]] = {}
    kinds: dict[str, str] = {}
    current = ""
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            current = line.split(" ", 3)[2]
            assert current not in found, f"{current} stands in two places"
            found[current] = {}
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current and kind in ("counter", "gauge") and name not in kinds
            assert (kind == "counter") == name.endswith("_total") and name.endswith(UNITS), name
            kinds[name] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match is not None, f"no sample: {line!r}"
            assert match[1] == current and current in kinds, f"{line!r} stands outside of its family"
            pairs = re.findall(LABEL, match[2] or "")
            labels = frozenset((key, re.sub(r"\\(.)", lambda one: {"n": "\n"}.get(one[1], one[1]), value))
                               for key, value in pairs)
            assert len(dict(labels)) == len(pairs) and labels not in found[current], f"twice: {line!r}"
            found[current][labels] = float(match[7])
    return found
