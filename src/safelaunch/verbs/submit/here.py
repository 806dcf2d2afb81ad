"""`submit --here`: a run in the job of this shell (salloc, srun --pty), whose script runs beside the shell, not queued.

The same script and supervisor as in a job of its own. What is missing is what needs another job, or another host: no
next job, no standby, and Slurm's warning before the time limit, for which the supervisor asks by itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from safelaunch.config.resolve import Resolved
from safelaunch.errors import ParseError, UsageError
from safelaunch.launch.settings import Settings
from safelaunch.run import plan as plans
from safelaunch.run.io import local
from safelaunch.run.io.runfolder import Run
from safelaunch.slurm import nodeset
from safelaunch.slurm.io import slurm
from safelaunch.slurm.via import HERE
from safelaunch.verbs.common import controls, runs, talk
from safelaunch.verbs.common.talk import Say

USED = frozenset(("nodes", "ntasks-per-node", "cpus-per-task", "gpus-per-node"))   # of `slurm`, for the attempt's srun
LOG_ENDS_S = 10.0   # for the log's last lines, behind the end of the script


def settle(points: list[Resolved], env: Mapping[str, str]) -> Resolved:
    """The run of a config as it lives in this shell's job; raises UsageError where that cannot be."""
    settings, nodes = points[0].settings, nodes_of(env)
    if points[0].point is not None:
        raise UsageError("--here starts one run, and this file has a sweep", hint="submit it without --here")
    if settings.cluster == "local":
        raise UsageError("--here needs Slurm, and this file says cluster: local", hint="submit it without --here")
    wanted = plans.of_settings(settings, "RUN").allocated_nodes
    if len(nodes) < wanted:
        raise UsageError(f"job {env['SLURM_JOB_ID']} has {len(nodes)} nodes, and the run needs {wanted} "
                         "(slurm.nodes and spare_nodes)", hint="salloc --nodes=… for as many, or slurm.nodes=… here")
    return points[0]._replace(settings=settings.with_(cluster=HERE))


def nodes_of(env: Mapping[str, str]) -> tuple[str, ...]:
    """The nodes of the job around this shell; raises UsageError where there is none to train in."""
    if "SAFELAUNCH_ATTEMPT" in env:
        raise UsageError("this is inside of a run's attempt: its nodes are taken", hint="submit it without --here")
    try:
        listed = env["SLURM_JOB_ID"] and nodeset.expand(env["SLURM_JOB_NODELIST"])
    except (KeyError, ParseError):
        listed = ()
    if not listed:
        raise UsageError("--here: there is no Slurm job around this shell (SLURM_JOB_ID, SLURM_JOB_NODELIST)",
                         hint="ask for one first: salloc --nodes=2 --time=2:00:00; or submit it without --here")
    return tuple(listed)


def tell_limits(settings: Settings, say: Say) -> None:
    """What differs from a job of its own."""
    ignored = sorted(set(settings.slurm) - USED)
    say("here: the run ends with this job: no next job goes on behind it, and no second supervisor watches the first")
    if ignored:
        say(f"here: this job is as it was asked for; not used: {', '.join(f'slurm.{name}' for name in ignored)}")


def train(run: Run, shows_log: bool, say: Say) -> int:
    """Run the job script until the run has ended, with its log on stdout; the run's exit code. Ctrl-C asks the training
    to save and end, a second one kills it. A terminal that goes away leaves the run to its supervisor.
    """
    job, before = os.environ["SLURM_JOB_ID"], os.environ.get("SLURM_JOB_NAME", "")
    _rename(job, run.plan.job_name, say)   # by it `status`, `stop` and `top` know the run's jobs
    script = local.start_here(run.dir, job, os.environ, str(run.meta["cwd"]))
    log = local.follow_log(run.dir) if shows_log else None
    try:
        code = _wait(run, script, say)
        if log is not None:
            local.wait(log, LOG_ENDS_S)   # in vain where the run has no end: its supervisor could not write one
    finally:
        if log is not None and log.poll() is None:
            log.terminate()
        _rename(job, before or "interactive", talk.hush)   # a job that has ended needs no name
    ended = runs.load(str(run.dir)).state().ended
    if ended is None or log is None:   # the log says it itself
        say(runs.describe_end(ended) if ended is not None else f"the job script ended with exit code {code}")
    return code if ended is None else ended.exit_code


def _wait(run: Run, script: local.Started, say: Say) -> int:
    asked = iter(("kill", "kill-now"))
    while True:
        try:
            return script.wait()
        except KeyboardInterrupt:
            name = next(asked, "kill-now")
            controls.touch(run.dir / "control" / name)
            say(f"{run.plan.name} is asked to save and end. Ctrl-C again kills it" if name == "kill" else
                f"{run.plan.name} is killed")


def _rename(job: str, name: str, say: Say) -> None:
    done = slurm.run(slurm.update_job(job, JobName=name), slurm.outside_job(os.environ))
    if not done.is_ok:
        say(f"warning: job {job} cannot be called {name} ({talk.clean(done.stderr.strip())}): status may not find it")
