"""What to type next, by what `status` shows."""

from __future__ import annotations

from safelaunch.slurm import via
from safelaunch.status.overview import Overview, is_silent
from safelaunch.status.states import ENDING


def next_lines(seen: Overview) -> list[str]:
    """The commands, the most useful first. Where something is wrong, that is what says what it is."""
    where = seen.run_dir
    if seen.preserving_until_t is not None:
        host = (seen.job.batch_host if seen.job else None) or "NODE"
        return [f"safelaunch shell {where} {host}", f"safelaunch release {where}"]
    if seen.state == "gave_up":
        return [f"safelaunch why {where}", f"safelaunch events {where}"]
    if seen.state in ("completed", "stopped", "unknown"):
        is_lost = seen.state == "unknown" and via.has_next_job(seen.cluster)
        is_doubtful = seen.state == "completed" and (seen.ended_nan or seen.ended_early)
        first = ["safelaunch watch --once"] if is_lost else [f"safelaunch why {where}"] if is_doubtful else []
        return [*first, f"safelaunch events {where}"]
    if seen.state == "on_hold":
        return [f"safelaunch resume {where}"]
    if seen.state in ("queued", "waiting", "submitting", "stopping"):
        return [f"safelaunch status --watch {where}"]
    return [*_of_living(seen), f"safelaunch logs -f {where}"]


def _of_living(seen: Overview) -> list[str]:
    where, attempt = seen.run_dir, seen.attempt
    if is_silent(seen):
        return [f"safelaunch stacks {where}"]
    is_stale = seen.pulse is not None and seen.pulse.is_stale and seen.cluster != "local"
    lines = ["safelaunch watch --once"] if is_stale else []
    number = None if attempt is None else attempt.number
    has_nan = any(one.attempt == number for one in seen.odd_figures)
    if has_nan or seen.state in (ENDING, "restarting") or (number or 0) > 1:   # or another attempt failed before it
        return [*lines, f"safelaunch why {where}"]
    if seen.slower is not None:   # the ranks that the others wait for
        return [*lines, f"safelaunch stacks {where}"]
    return lines
