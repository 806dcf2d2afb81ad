"""safelaunch status: how a run is doing, why, and what to type next."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import click

from safelaunch.adapters.runfolder import Run
from safelaunch.commands import runs, talk
from safelaunch.commands.overview import overview
from safelaunch.commands.runs import Word
from safelaunch.core import via
from safelaunch.errors import RunFolderError

REFRESH_S = 2.0
ASK_EVERY_S = 60.0   # one query for all, at least 60 s apart: a courtesy to slurmctld (design §7)

Row = tuple[str, str, str]   # label, text, style of the text for a terminal
_STYLES = {"completed": "green", "running": "green", "gave_up": "red", "stopped": "yellow", "unknown": "yellow",
           "preserving": "red", "queued": "cyan"}


@click.command()
@runs.run_argument
@click.option("--watch", is_flag=True, help="Show it again and again until the run has ended.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, documented in docs/verbs.md.")
def command(which: str | None, watch: bool, as_json: bool) -> int:
    """Show how a run is doing, and what to type next."""
    run = runs.load(which)
    if watch and not as_json:
        return _watch(run)
    seen = overview(run, runs.ask_scheduler(run), time.time())
    if as_json:
        talk.emit_json(seen)
    elif talk.is_for_person():
        _console().print(_table(seen))
    else:
        click.echo(plain(seen))
    return 0


def rows(seen: dict[str, Any]) -> Iterator[Row]:
    """What people are told, one row a thing; rows without content are left out."""
    now = seen["now_t"]
    yield "run", f"{seen['name']} ({seen['run_id']}) in {seen['run_dir']}", "bold"
    since = f", since {talk.clock(seen['since_t'])} ({talk.span(now - seen['since_t'])})" if seen["since_t"] else ""
    yield "state", f"{seen['state']}{since}", _STYLES.get(seen["state"], "")
    yield "", seen["sentence"], ""
    yield from _alarm_rows(seen)
    yield from _job_rows(seen)
    yield from _progress_rows(seen)
    out = {one["node"] for one in (*seen["excluded"], *seen["left_out"])}
    for one in seen["excluded"]:
        until = f" until {talk.clock(one['until_t'])}" if one["until_t"] is not None else ""
        yield "kept out", f"{one['node']}{until}: {one['why']}", "yellow"
    for one in seen["left_out"]:
        yield "left out", f"{one['node']}: {one['why']}", "yellow"
    for suspect in seen["suspects"]:
        if suspect["node"] not in out:
            yield "suspect", f"{suspect['node']}: {suspect['why']}", "yellow"
    for request in seen["requests"]:
        if request["name"] != "extend":   # its time says until when, and `kept` says that
            yield "asked", f"{request['who']} touched {request['name']} at {talk.clock(request['t'])}", "yellow"
    if seen["preserving_until_t"] is not None:
        left_s = seen["preserving_until_t"] - now
        until = talk.clock(seen["preserving_until_t"])
        yield "kept", f"until {until} ({talk.span(left_s)} left), for people to look", "red"
    yield "held", _held(seen), ""
    for decision in seen["decisions"]:
        row = decision["row"].replace("_", " ")
        yield "decided", f"{talk.clock(decision['t'])} {row}: {decision['why']}", ""
    yield from (("next", line, "bold") for line in next_lines(seen))


def next_lines(seen: dict[str, Any]) -> list[str]:
    """What to type next."""
    where = seen["run_dir"]
    if seen["preserving_until_t"] is not None:
        host = (seen["job"] or {}).get("batch_host") or "NODE"
        return [f"safelaunch shell {where} {host}", f"safelaunch release {where}"]
    if seen["state"] == "gave_up":
        return [f"safelaunch why {where}", f"safelaunch events {where}"]
    if seen["state"] in ("completed", "stopped", "unknown"):
        return [f"safelaunch events {where}"]
    if seen["state"] in ("queued", "submitting"):
        return [f"safelaunch status --watch {where}"]
    return [f"safelaunch logs -f {where}"]


def plain(seen: dict[str, Any]) -> str:
    """The rows as text without colours or wrapping, for files, pipes and programs."""
    return "\n".join(f"{label:<11}{talk.clean(text)}".rstrip() for label, text, _ in rows(seen))


def _alarm_rows(seen: dict[str, Any]) -> Iterator[Row]:
    pulse, job = seen["pulse"], seen["job"]
    if pulse is not None and pulse["is_stale"]:
        yield "pulse", f"no sign of life from the supervisor on {pulse['host']} for {talk.span(pulse['age_s'])}", "red"
    elif pulse is None and job and job["started_t"] and not seen["ended"] and seen["now_t"] - job["started_t"] > 60:
        yield "pulse", f"no sign of life from a supervisor since {talk.clock(job['started_t'])}", "red"
    elif pulse is not None and not seen["ended"]:
        yield "pulse", f"{talk.span(pulse['age_s'])} old, from {pulse['host']}", ""
        if seen["standby"] is not None:
            yield "standby", f"on {seen['standby']}, ready to take over", ""
        yield from _hang_rows(seen)
    yield from _slurm_rows(seen)
    for problem in seen["journal_problems"]:
        yield "journal", f"cannot be read: {problem}", "red"


def _slurm_rows(seen: dict[str, Any]) -> Iterator[Row]:
    said = seen["slurm"]
    if said["trouble"] and not seen["ended"]:
        yield "slurm", f"no clear answer: {said['trouble']}", "yellow"
    if said["version"] is not None and said["is_known"]:
        yield "slurm", str(said["version"]), ""
    elif said["version"] is not None:
        yield "slurm", (f"{said['version']}, a release that this safelaunch does not know: where it cannot read why "
                        "something ended, it asks, and counts no failure"), "yellow"
    unread = said["unknown_words"]
    if unread is not None:
        yield "slurm", (f"ended something of job {unread['job']} in words that this safelaunch does not know: "
                        f"{unread['said']!r}"), "yellow"


def _hang_rows(seen: dict[str, Any]) -> Iterator[Row]:
    hang_t, attempt = seen["pulse"]["hang_t"], seen["attempt"]
    if hang_t is None or attempt is None or attempt["number"] != seen["pulse"]["attempt"]:
        return   # the pulse is as old as 15 s, and may tell of the attempt before
    if hang_t > seen["now_t"]:
        yield "hang", f"hang check at {talk.clock(hang_t)} if no step is logged by then", ""
    else:
        yield "hang", f"hang check since {talk.clock(hang_t)}: reading the stacks of all ranks", "yellow"


def _job_rows(seen: dict[str, Any]) -> Iterator[Row]:
    job = seen["job"]
    if job is not None:
        start = f", started {talk.clock(job['started_t'])}" if job["started_t"] else ""
        yield "job", f"{job['id']} on {job['nodelist']}{start}" if job["nodes"] else f"{job['id']}{start}", ""
    if seen["successor"] is not None and not seen["ended"]:
        known = next((one for one in seen["slurm"]["jobs"] or () if one["id"] == seen["successor"]), None)
        reason = f" ({known['reason']})" if known else ""
        yield "next job", f"job {seen['successor']} is queued behind it{reason}", ""
    elif seen["next_cancelled"] is not None and not seen["ended"]:
        yield "next job", f"a person cancelled job {seen['next_cancelled']}: the run ends with this one", "yellow"
    elif seen["via"] is not None and not seen["ended"]:
        yield "next job", f"{via.SENTENCES.get(seen['via'], seen['via'])} (restart.via: {seen['via']})", ""


def _progress_rows(seen: dict[str, Any]) -> Iterator[Row]:
    attempt = seen["attempt"]
    if attempt is None:
        return
    at = f", from step {attempt['resume_step']}" if attempt["resume_step"] is not None else ""
    end = f", {attempt['ended']}" if attempt["ended"] else ""
    why = f": {attempt['summary']}" if attempt["summary"] else ""
    yield "attempt", f"{attempt['number']} on {attempt['nodelist']}{at}{end}{why}", ""
    if seen["step"] is not None:
        yield "step", ", ".join([str(seen["step"]), *_figures(seen)]), ""
    if seen["checkpoint_step"] is not None:
        yield "checkpoint", f"step {seen['checkpoint_step']} is the newest complete one", ""
    yield "restarts", (f"{seen['restarts']} of {seen['max_restarts']} used; {seen['failures_without_progress']} of "
                       f"{seen['max_without_progress']} failures in a row without progress"), ""


def _figures(seen: dict[str, Any]) -> Iterator[str]:
    """What the log says of the last step: "loss 2.31", "12.5 s a step (median 11.9 s)", "7282 tokens/s"."""
    if seen["loss"] is not None:
        yield f"loss {seen['loss']}"
    now_s, typical_s = seen["step_time_s"], seen["typical_step_time_s"]
    if isinstance(now_s, float):
        usual = f" (median {typical_s:.4g} s)" if isinstance(typical_s, float) and typical_s != now_s else ""
        yield f"{now_s:.4g} s a step{usual}"
    if seen["throughput"] is not None:
        yield f"{seen['throughput']['value']:.6g} {seen['throughput']['unit']}"


def _held(seen: dict[str, Any]) -> str:
    gpus = f", {seen['gpu_hours']:.4g} GPU-hours" if seen["gpu_hours"] is not None else ""
    return f"{seen['node_hours']:.4g} node-hours{gpus} so far"


# --- for a terminal -----------------------------------------------------------------------------------------------


def _console() -> Any:
    from rich.console import Console

    return Console(highlight=False)


def _table(seen: dict[str, Any]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text, style in rows(seen):
        table.add_row(label, Text(talk.clean(text), style=style))
    return table


def _watch(run: Run) -> int:
    word, asked_s = runs.ask_scheduler(run), time.monotonic()
    if not talk.is_for_person():
        for seen in _views(run, word, asked_s):
            click.echo(plain(seen) + "\n")
        return 0
    from rich.live import Live

    with Live(console=_console(), auto_refresh=False) as live:
        for seen in _views(run, word, asked_s):
            live.update(_table(seen), refresh=True)
    return 0


def _views(run: Run, word: Word, asked_s: float) -> Iterator[dict[str, Any]]:
    """The run's object every REFRESH_S, until it has ended; on a frozen folder the last one stays."""
    while True:
        if time.monotonic() - asked_s >= ASK_EVERY_S:
            word, asked_s = runs.ask_scheduler(run), time.monotonic()
        try:
            runs.ask(lambda: (run.dir / "run.json").stat().st_size, str(run.dir))
        except RunFolderError as error:
            talk.say(error.message)
            continue
        seen = overview(run, word, time.time())
        yield seen
        if seen["ended"] is not None:
            return
        time.sleep(REFRESH_S)
