"""Many runs, a line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from safelaunch.status.overview import Brief, since_of, style_of, word_of
from safelaunch.status.speech import Speech

HEAD = ("RUN", "OWNER", "STATE", "FOR", "STEP", "DONE IN", "JOB", "ENDS IN", "RETRY", "")
_OWNER, _SAID = HEAD.index("OWNER"), len(HEAD) - 1
# Where the terminal is too narrow these columns are left out, one by one. The sentence may name the job.
_LEFT_OUT = ("ENDS IN", "RETRY", "JOB", "FOR", "DONE IN", "STEP", "OWNER")
LEAST_SAID = 16        # columns for the sentence; below that it goes on a line of its own
MOST_NAME, NARROW_NAME, NARROW = 28, 14, 100
MOST_PARTS = 4         # of a path that stands for a name
_SHORT = (("min", "m"), ("h", "h"), ("d", "d"), ("s", "s"))
_GAP = "  "

T = TypeVar("T")

Line = tuple[str, str]   # text, style


def render(briefs: Sequence[Brief], speech: Speech, width: int | None, with_owner: bool,
           most_lines: int | None = None) -> list[Line]:
    """The table's lines; `width` None = sentences as long as they are, for pipes. Empty columns are left out, and
    others where it is too narrow. Of more than `most_lines` those runs are shown that tell most.
    """
    lines = _render(briefs, speech, width, with_owner) if briefs else []
    if most_lines is None or len(lines) <= most_lines:
        return lines
    each = -(-(len(lines) - 1) // len(briefs))
    shown = most_telling(briefs, briefs, (most_lines - 2) // each)
    return [*_render(shown, speech, width, with_owner), (cut(more(len(briefs) - len(shown)), width), "dim")]


def more(left: int) -> str:
    """What stands below a table that does not fit."""
    return f"and {left} more: a larger window shows them"


def most_telling(rows: Sequence[T], runs: Sequence[Brief], most: int | None) -> Sequence[T]:
    """Of more rows than `most` those that have ended badly or go on, then those that have completed, in their order."""
    if most is None or len(rows) <= most:
        return rows
    late = ("completed", "queued")
    ranks = [late.index(run.state) + 1 if run.state in late else 0 for run in runs]
    told = sorted(range(len(rows)), key=ranks.__getitem__)[:max(1, most)]
    return [rows[number] for number in sorted(told)]


def _render(briefs: Sequence[Brief], speech: Speech, width: int | None, with_owner: bool) -> list[Line]:
    most = NARROW_NAME if width is not None and width < NARROW else MOST_NAME
    names = names_of(briefs)
    cells = [cells_of(one._replace(name=name), speech, most) for one, name in zip(briefs, names, strict=True)]
    kept = [column for column in range(_SAID) if column != _OWNER or with_owner]
    kept = [column for column in kept if any(row[column] for row in cells)]
    wide = {column: max(len(HEAD[column]), *(len(row[column]) for row in cells)) for column in kept}
    for name in _LEFT_OUT:
        if width is not None and sum(wide.values()) + len(_GAP) * (len(wide) - 1) > width:
            wide.pop(HEAD.index(name), None)
    kept, widths = [*wide], [*wide.values()]
    lead = sum(widths) + len(_GAP) * len(widths)
    lines = [(cut(join([HEAD[column] for column in kept], widths).rstrip(), width), "dim")]
    for row, one in zip(cells, briefs, strict=True):
        head, said = join([row[column] for column in kept], widths), row[_SAID]
        style = "red" if one.is_stale else style_of(one)
        if width is None or width - lead >= LEAST_SAID:
            lines.append((f"{head}{cut(said, None if width is None else width - lead)}".rstrip(), style))
        else:
            lines.append((cut(head.rstrip(), width), style))
            if said:
                lines.append((cut(f"  {said}", width), "dim"))
    return lines


def names_of(briefs: Sequence[Brief]) -> list[str]:
    """The runs' names; of several with one name the ends of their folders' paths, as long as tells them apart."""
    found = [one.name for one in briefs]
    for parts in range(1, MOST_PARTS + 1):
        many = {name for name, number in Counter(found).items() if number > 1}
        found = ["/".join(one.run_dir.split("/")[-parts:]) if name in many else name
                 for one, name in zip(briefs, found, strict=True)]
    return found


def cells_of(one: Brief, speech: Speech, most: int = MOST_NAME) -> tuple[str, ...]:
    """One run's cells below HEAD."""
    now, step = one.now_t, one.step
    since_t = since_of(one)
    since = _short(speech, now - since_t) if since_t is not None else ""
    values = " ".join(f"{name}={value}" for name, value in one.values.items())
    done_in = _short(speech, one.eta_t - now) if one.eta_t is not None else ""
    ends_in = _short(speech, one.job_ends_t - now) if one.job_ends_t is not None else ""
    of = f"/{one.step_total}" if step is not None and one.step_total else ""
    return (cut(one.name, most), one.owner, word_of(one), since,
            "" if step is None else f"{step}{of}", done_in, one.job or "", ends_in, restarts_of(one),
            f"{values}; {one.sentence}" if values else one.sentence)


def restarts_of(one: Brief) -> str:
    """Restarts that are used, of those allowed; the failure behind the last of them is counted, too."""
    used = min(one.restarts, one.max_restarts)
    return f"{used}/{one.max_restarts}" if used else ""


def _short(speech: Speech, seconds: float) -> str:
    """3h 12m, 45s."""
    text = speech.span(seconds)
    for unit, letter in _SHORT:
        text = text.replace(f" {unit}", letter)
    return text


def join(cells: Sequence[str], widths: Sequence[int]) -> str:
    """The cells of a line, each as wide as its column, with a gap behind each."""
    return "".join(f"{cell:<{width}}{_GAP}" for cell, width in zip(cells, widths, strict=True))


def cut(text: str, width: int | None) -> str:
    """The text, no wider than that."""
    return text if width is None or len(text) <= width else f"{text[:max(0, width - 1)]}…"
