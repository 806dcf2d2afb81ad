"""The report of a run as one HTML file that needs nothing else: no script, no request, drawings within it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from safelaunch.base.endings import GOOD_ENDS
from safelaunch.base.io import durable
from safelaunch.base.numbers import figure, percent
from safelaunch.errors import UsageError
from safelaunch.report import drawing
from safelaunch.run.io.runfolder import Run
from safelaunch.status import shares
from safelaunch.verbs.common import talk
from safelaunch.verbs.report.reportfacts import ReportFacts, gather, node_uses

STYLE = "style.css"
DEVICES = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))


def render(run: Run, now: float) -> str:
    """The page of a run at the time `now`."""
    facts = gather(run, now)
    drawn = {name: Markup(svg) for name, svg in _draw(facts).items()}   # noqa: S704 - report.drawing has escaped it
    return environment().get_template("run.html").render(
        run=facts.public, kinds=shares.KINDS, drawn=drawn, style=style())


def store(path: Path, page: str) -> None:
    """Write the page under a temporary name, then rename it: a reader sees all of it. A device, such as /dev/null or
    /dev/stdout, and a pipe get it as a shell's `>` would do it. Raises UsageError.
    """
    data = page.encode(errors="replace")
    try:
        if path.parent in DEVICES or (path.exists() and not path.is_file()):
            with path.open("wb") as file:
                file.write(data)
        else:
            durable.put(path, data, 0o640)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}", hint="name another file: -o FILE"
                         ) from error


def style() -> Markup:
    """The style sheet of the package."""
    loader = _loader()
    return Markup(loader.get_source(environment(), STYLE)[0])   # noqa: S704


def _loader() -> PackageLoader:
    return PackageLoader("safelaunch", "templates/report")


def environment() -> Environment:
    """Everything that a template prints is escaped, and its control characters are made visible."""
    made = Environment(loader=_loader(), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
                       lstrip_blocks=True, finalize=_plain)
    made.filters.update(clock=lambda t: "" if t is None else talk.moment(t), span=span_of, percent=_share)
    return made


def _plain(value: Any) -> Any:
    return talk.clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def span_of(seconds: float) -> str:
    """A span of time; one below ten seconds with a tenth."""
    return f"{seconds:.1f} s" if 0 < seconds < 9.95 and seconds != int(seconds) else talk.span(seconds)


def _share(value: float | None) -> str:
    return "unknown" if value is None else percent(value)


def _draw(facts: ReportFacts) -> dict[str, str]:
    """The drawings by name; "" where there is nothing to draw."""
    since, until, spans = facts.public.since_t, facts.public.until_t, facts.spans
    marks = [(one.ended_t, f"{one.number}: {one.category or one.ended}") for one in facts.state.attempts
             if one.ended_t is not None and one.ended not in GOOD_ENDS]
    nodes, uses = node_uses(facts.state)
    pace_flags = [(one.step, f"from {_figure(one.from_s)} s to {_figure(one.to_s)} s a step")
                  for one in facts.public.pace_changes]
    flags = {name: [(one.step, f"spike at step {one.step}: {one.value}") for one in found]
             for name, found in facts.public.spikes.items()}
    return {
        "shares": drawing.share_bar(shares.totals(spans), span_of) if spans else "",
        "steps": drawing.staircase(facts.tracks, spans, facts.checkpoints, since, until, span_of)
        if any(track.points for track in facts.tracks) else "",
        "timeline": drawing.timeline(spans, marks[-60:], since, until, span_of) if spans else "",
        "nodes": drawing.node_table(nodes, uses) if nodes else "",
        "loss": drawing.chart(facts.figures.losses, "Loss by step", _figure, flags["loss"]),
        "step_time_s": drawing.chart(facts.figures.step_times, "Seconds per step", _figure,
                                     [*flags["step_time_s"], *pace_flags]),
    }


def _figure(value: float) -> str:
    return figure(value)
