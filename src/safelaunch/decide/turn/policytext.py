"""The policy of one config for people and programs: rows, budgets, and the order of the decisions."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from safelaunch.base.yaml.yamlnodes import DEFAULT, MappingNode, Origin
from safelaunch.base.yaml.yamltext import parse_document
from safelaunch.config.keys import KEYS
from safelaunch.config.layers import merge_layers, parse_overrides
from safelaunch.config.resolve import ConfigLayer
from safelaunch.config.values import render_duration
from safelaunch.decide.budget import policy
from safelaunch.decide.budget.policy import Response
from safelaunch.decide.turn import between

VERSION = 1
BUDGET_KEYS = ("restart.max_restarts", "restart.max_without_progress", "restart.max_jobs", "restart.max_time",
               "restart.backoff", "restart.via",
               "restart.on_lost_progress", "resume.keep_trying", "suspects.exclude", "suspects.max_excluded",
               "suspects.forget_after", "suspects.ledger")
_DURATIONS = ("restart.max_time", "restart.backoff", "suspects.forget_after")
_LEAST_WIDTH = 72


@dataclass(frozen=True)
class PolicyRow:
    """A category's row, and where it was written; "" = it is the default's."""

    response: Response
    place: str


@dataclass(frozen=True)
class Budget:
    """A key with its value as train.yaml would have it, what it is for, and where it was written ("": nowhere)."""

    key: str
    value: Any
    text: str
    doc: str
    place: str


@dataclass(frozen=True)
class Shown:
    """A policy; `order` is the table of decide between two attempts: row and what it stands for."""

    rows: tuple[PolicyRow, ...]
    budgets: tuple[Budget, ...]
    order: tuple[tuple[str, str], ...]


def show(config: Mapping[str, Any], places: Mapping[str, str]) -> Shown:
    """The policy of a resolved config; `places` says where keys were written, by dotted key."""
    own = (config["restart"].get("policy") or {}).items()
    rows = tuple(PolicyRow(row, _place(row, places)) for row in policy.table(own).values())
    budgets = tuple(_budget(key, config, places) for key in BUDGET_KEYS)
    return Shown(rows, budgets, tuple((row.__name__.strip("_"), _first_sentence(row.__doc__ or ""))
                                      for row in between.BETWEEN))


def _first_sentence(text: str) -> str:
    """ "A b c." of a text of several lines that begins with "A b\n    c. D"."""
    return " ".join(text.split()).partition(". ")[0].rstrip(".") + "."


def places_of(sources: Sequence[ConfigLayer], overrides: Sequence[str]) -> dict[str, str]:
    """Dotted key → where it was written, for the policy's rows and the budgets; defaults are left out. It reads the
    layers, because a resolved config knows the origin of `restart.policy` only as a whole.
    """
    trees = [tree for source in sources
             if (tree := parse_document(source.text, layer=source.layer, file=source.name)[0]) is not None]
    merged = merge_layers(MappingNode({}, DEFAULT), [*trees, *parse_overrides(overrides)[0]])
    found: dict[str, str] = {}
    for section in ("restart", "resume", "suspects"):
        _collect(merged.entries.get(section), section, found)
    return found


def place_of(origin: Origin) -> str:
    """file:line; a layer's name where there is no line; "" for a default."""
    if origin.layer == "default":
        return ""
    return f"{origin.file}:{origin.line}" if origin.line else origin.layer


def render(shown: Shown, width: int | None) -> list[str]:
    """Lines for people, folded to `width`; None = not folded."""
    lines = [_columns(("category", 17), ("then", 10), ("budget", 7)) + "why"]
    of_run = {one.key: one.text for one in shown.budgets}
    for row in shown.rows:
        answer = row.response
        budget = _of_run(answer, of_run) if answer.budget is None else str(answer.budget)
        lines += _fold(_columns((answer.category, 17), (answer.then, 10), (budget, 7)), _why(row), width)
    refilled = "budgets; a verified checkpoint that advances refills those of categories and without progress"
    lines += ["", *_fold("", refilled, width)]
    for budget_row in shown.budgets:
        place = f" ({budget_row.place})" if budget_row.place else ""
        lines += _fold(_columns((budget_row.key, 30), (budget_row.text, 10)), budget_row.doc + place, width)
    lines += ["", "between two attempts, the first row that has an opinion decides"]
    for number, (name, doc) in enumerate(shown.order, start=1):
        lines += _fold(f"{number:>2} " + _columns((name, 17)), doc, width)
    return lines


def to_json(shown: Shown, of: str) -> dict[str, object]:
    """The object of `policy --json`; `of` says whose policy it is."""
    return {
        "v": VERSION, "of": of,
        "policy": [{"category": row.response.category, "then": row.response.then, "budget": row.response.budget,
                    "why": row.response.why, "is_own": row.response.is_own, "place": row.place or None}
                   for row in shown.rows],
        "budgets": [{"key": row.key, "value": row.value, "place": row.place or None} for row in shown.budgets],
        "order": [{"row": name, "why": doc} for name, doc in shown.order],
    }


def _of_run(answer: Response, of_run: Mapping[str, str]) -> str:
    """The budget of a row that has none of its own: the run's, where a failure of this kind counts in one."""
    key = {"fall_back": "resume.keep_trying", "restart": "restart.max_without_progress",
           "exclude": "restart.max_without_progress"}.get(answer.then, "")
    return "1" if answer.then == "once" else of_run.get(key, "-")


def _place(row: Response, places: Mapping[str, str]) -> str:
    if not row.is_own:
        return ""
    return places.get(f"restart.policy.{row.category}") or places.get("restart.policy") or "train.yaml"


def _why(row: PolicyRow) -> str:
    """For a row that was written: where, and the default."""
    if not row.response.is_own:
        return row.response.why
    default = policy.DEFAULTS[row.response.category]
    who = "the command line" if row.place == "command line" else row.place
    return f"{who} says so; the default is {default.text}: {default.why}"


def _budget(key: str, config: Mapping[str, Any], places: Mapping[str, str]) -> Budget:
    section, _, leaf = key.partition(".")
    value = config.get(section, {}).get(leaf)
    return Budget(key, value, _text(key, value), KEYS[key].doc, places.get(key, ""))


def _text(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    return render_duration(value) if key in _DURATIONS else str(value)


def _collect(node: Any, path: str, found: dict[str, str]) -> None:
    if isinstance(node, MappingNode):
        for key, below in node.entries.items():
            _collect(below, f"{path}.{key}", found)
    elif node is not None:
        found[path] = place_of(node.origin)


def _columns(*cells: tuple[str, int]) -> str:
    """Cells padded to their widths; a longer one pushes the rest."""
    return "".join(f"{text:<{width}} " for text, width in cells)


def _fold(head: str, text: str, width: int | None) -> list[str]:
    """The text after its head; further lines are indented below it."""
    if width is None or len(head) + len(text) <= width:
        return [(head + text).rstrip()]
    indent = " " * min(len(head), 42)
    return textwrap.wrap(head + text, max(width, _LEAST_WIDTH), subsequent_indent=indent, drop_whitespace=True,
                         break_long_words=False, break_on_hyphens=False)
