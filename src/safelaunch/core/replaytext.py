"""Replays as people and programs read them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from safelaunch.core.replay import Choice, Replay, Replayed

VERSION = 1
_WORDS = {"done": "done", "restart": "restart", "next_job": "next job", "stop": "stop", "unknown": "not told"}
_HEAD = f"{'attempt':>7}  {'category':<17} {'sure':>4}  {'then':<9} {'policy':<11} "
_LEAST_WIDTH = 72

Named = tuple[str, str, Replay]   # the run's name, its folder, what became of it


def render(named: Sequence[Named], width: int | None) -> list[str]:
    """Lines for people: a table for each run, and the sums; folded to `width`, None = as long as they are."""
    lines: list[str] = []
    for name, folder, run in named:
        lines += [f"{name} in {folder}", f"{_HEAD}with this policy"]
        for one in run.attempts:
            lines += _fold(_cells(one), _now(one), width)
        if not run.attempts:
            lines.append("        no attempt has ended")
        if run.harm:
            lines += _fold("beware  ", f"{run.harm}: this policy would have prevented that", width)
        lines.append("")
    return [*lines, *_fold("", summary(named), width)]


def summary(named: Sequence[Named]) -> str:
    """The sums in one sentence."""
    runs = [run for _, _, run in named]
    attempts, differing = sum(len(run.attempts) for run in runs), sum(run.differing for run in runs)
    text = f"{_count(attempts, 'attempt')} of {_count(len(runs), 'run')}: {_count(differing, 'decision')} differ"
    text += "s" if differing == 1 else ""
    saved = sum(len(run.saved) for run in runs)
    if saved:
        text += f"; {_count(saved, 'restart')} saved ({_hours(runs)})"
    if added := sum(run.added for run in runs):
        text += f"; {_count(added, 'restart')} added at least (GPU-hours unknown: they were never made)"
    harmed = [name for name, _, run in named if run.harm]
    if harmed:
        text += f"; beware of what {', '.join(harmed)} would have missed"
    return text


def to_json(named: Sequence[Named]) -> dict[str, Any]:
    """The object of `policy --replay --json`."""
    runs = [run for _, _, run in named]
    return {
        "v": VERSION,
        "runs": [{"name": name, "run_dir": folder, "harm": run.harm or None,
                  "attempts": [_attempt(one) for one in run.attempts]} for name, folder, run in named],
        "summary": {
            "runs": len(runs), "attempts": sum(len(run.attempts) for run in runs),
            "differing": sum(run.differing for run in runs), "restarts_saved": sum(len(run.saved) for run in runs),
            "restarts_added": sum(run.added for run in runs), "node_hours": _sum(run.node_hours for run in runs),
            "gpu_hours": _sum(run.gpu_hours for run in runs),
        },
    }


def _attempt(one: Replayed) -> dict[str, Any]:
    known = one.attempt
    return {"attempt": known.number, "ended": known.ended, "category": known.category, "confidence": known.confidence,
            "step": known.step, "then": _choice(one.then), "policy": one.policy, "now": _choice(one.now),
            "differs": one.differs, "made": not one.is_moot,
            "node_hours": None if one.node_hours is None else round(one.node_hours, 4)}


def _choice(choice: Choice) -> dict[str, Any]:
    return {"kind": choice.kind, "row": choice.row or None, "why": choice.why or None,
            "pause_s": round(choice.pause_s, 1)}


def _cells(one: Replayed) -> str:
    known = one.attempt
    category = known.category or ("-" if known.ended == "completed" else "unknown")
    sure = f"{known.confidence:.0%}" if known.category else "-"
    return f"{known.number:>7}  {category:<17} {sure:>4}  {_WORDS[one.then.kind]:<9} {one.policy:<11} "


def _now(one: Replayed) -> str:
    if one.is_moot:
        return "(would not have been made)"
    if one.now == one.then:
        return "the same"
    pause = f" after {one.now.pause_s:.0f} s" if one.now.pause_s >= 1 else ""
    what = f"{_WORDS[one.now.kind]}{pause}"
    if not one.differs:
        return what if pause else "the same"
    return f"differs: {what}" + (f" ({one.now.why})" if one.now.kind == "stop" and one.now.why else "")


def _hours(runs: Sequence[Replay]) -> str:
    gpu, node = _sum(run.gpu_hours for run in runs), _sum(run.node_hours for run in runs)
    if gpu is not None:
        return f"they held {gpu:.1f} GPU-hours"
    return "they held unknown GPU-hours" if node is None else f"they held {node:.1f} node-hours, GPU-hours unknown"


def _sum(hours: Iterable[float | None]) -> float | None:
    """None where one of them is not known."""
    known = list(hours)
    return None if None in known else round(sum(hour for hour in known if hour is not None), 4)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _fold(head: str, text: str, width: int | None) -> list[str]:
    if width is None or len(head) + len(text) <= width:
        return [(head + text).rstrip()]
    return textwrap.wrap(head + text, max(width, _LEAST_WIDTH), subsequent_indent=" " * min(len(head), 40),
                         break_long_words=False, break_on_hyphens=False)
