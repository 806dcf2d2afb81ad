"""safelaunch wait: until a run has ended; ends with the run's own exit code."""

from __future__ import annotations

import click

from safelaunch.base.jsonform import to_json
from safelaunch.run.io.runfolder import Run
from safelaunch.verbs.common import runs, talk
from safelaunch.verbs.common.waiting import await_end
from safelaunch.verbs.status import sweeps


@click.command()
@runs.run_argument
@runs.duration_option("--timeout", "timeout_s", help="Give up after 90s, 15m, 1h30m …, with exit code 124.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout when the run has ended.")
def command(which: str | None, timeout_s: float | None, as_json: bool) -> int:
    """Wait until a run, or all runs of a sweep, have ended, and exit with its code.

    0 done, 10 failed for good, 11 restart budget spent, 12 stopped, 13 boot check failed, 124 timed out. A run whose
    last job failed without a supervisor has failed for good when Slurm shows no other job of it. A job that Slurm has
    lost is reported once on stderr, and the wait goes on until a time-out or Ctrl-C.
    """
    if points := runs.find_sweep(which):
        return sweeps.wait(points, timeout_s, as_json)
    return wait_for(runs.load(which), timeout_s, as_json)


def wait_for(run: Run, timeout_s: float | None, as_json: bool = False) -> int:
    """The run's exit code, once it has ended; raises WaitTimedOut."""
    ended = await_end(run, timeout_s, talk.say)
    if as_json:
        talk.emit_json({"v": 1, "name": run.plan.name, "run_dir": str(run.dir), "state": ended.how,
                        "exit_code": ended.exit_code, "why": ended.why, "t": ended.t,
                        "ended_early": to_json(runs.load(str(run.dir)).state().ended_early)})
    else:
        talk.say(runs.describe_end(ended))
    return ended.exit_code
