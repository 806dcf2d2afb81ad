"""safelaunch submit: sbatch for a training that is to survive."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from safelaunch import __version__
from safelaunch.adapters import (
    bashtext,
    local,
    ownership,
    registry,
    rulepacks,
    runfolder,
    runpath,
    sharedfile,
    sitefiles,
    slurm,
)
from safelaunch.adapters.clustername import ClusterName
from safelaunch.adapters.configfiles import read_config
from safelaunch.adapters.provenance import GitFacts
from safelaunch.adapters.submission import Submission
from safelaunch.core import plan as plans
from safelaunch.core import script
from safelaunch.core.config.resolve import Resolved
from safelaunch.core.plaintext import clean
from safelaunch.core.plan import Plan
from safelaunch.core.secretmask import hide_values
from safelaunch.errors import ConfigError, RunFolderError, SlurmRefused, UsageError
from safelaunch.views.trainfile import split_rest, train_file_arguments

if TYPE_CHECKING:
    from safelaunch.views.firststart import FirstStart

GIT_BEFORE_S, GIT_AFTER_S = 0.02, 10.0
CLUSTER_S = 1.0   # a slurmctld that needs longer than this for its name may take a job all the same


@click.command()
@train_file_arguments
@click.option("--dry-run", is_flag=True, help="Print the script, and what would be sent; submit nothing.")
@click.option("--wait", "wait_for_end", is_flag=True, help="Wait until the run has ended, and end with its exit code.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a line.")
def command(file: str, rest: tuple[str, ...], dry_run: bool, wait_for_end: bool, as_json: bool) -> int:
    """Submit a training instead of sbatch, and keep it alive."""
    overrides, raw_sbatch = split_rest(rest)
    cwd, git, cluster = str(Path.cwd()), GitFacts(str(Path.cwd())), ClusterName(os.environ)
    try:
        resolved = read_config(file, overrides, raw_sbatch)
        choose_cluster(resolved)
        if dry_run:
            return _show(resolved)
        if resolved.config["cluster"] != "local":
            _refuse_other_clusters(cluster)
        run, job = _submit(resolved, cwd, git, cluster)
    finally:
        git.close()
    _report(run, job, as_json)
    if wait_for_end:
        from safelaunch.commands import wait

        return wait.wait_for(run, None)
    return 0


def render(resolved: Resolved, run_id: str) -> tuple[Plan, str]:
    """The plan of a config, and the script that submit sends; raises TemplateError."""
    plan = plans.make(resolved.config, run_id)
    srun = local.srun_words() if plan.cluster == "local" else ("srun",)
    text = script.render(sitefiles.read_template(os.environ.get("SAFELAUNCH_TEMPLATE")), plan,
                         python=sitefiles.python(), library=sitefiles.library(), srun=srun, umask=sitefiles.umask(),
                         is_complete=bashtext.is_complete)
    return plan, text


def choose_cluster(resolved: Resolved) -> None:
    """Settle `cluster: auto` for good, and say so where it is not Slurm: nobody trains on a login node unawares."""
    if resolved.config["cluster"] != "auto":
        return
    resolved.config["cluster"] = "slurm" if shutil.which("sbatch") else "local"
    if resolved.config["cluster"] == "local":
        _say("cluster: auto takes this machine: there is no sbatch on the PATH (cluster=slurm insists on Slurm)")


def _show(resolved: Resolved) -> int:
    """--dry-run: the script on stdout, the act on stderr; `RUN` stands for the id that submit draws."""
    plan, text = render(resolved, "RUN")
    sys.stdout.write(text)
    folder = _free_folder(Path(plan.run_dir))[0]
    send = ["bash", str(folder / "job.sbatch")] if plan.cluster == "local" else list(
        slurm.sbatch(str(folder / "job.sbatch"), ["--dependency=singleton", *script.first_job_options(plan)]))
    sys.stderr.write(f"would make {folder}, write this script to it and run: {' '.join(send)}\n")
    start = _start_of(plan, str(Path.cwd()))
    for line in start.lines if start else ():
        _say(line)
    return 0


def _refuse_other_clusters(cluster: ClusterName) -> None:
    """Refuse what sbatch would take for another cluster: the run's other commands would ask this one."""
    for variable in ("SBATCH_CLUSTERS", "SLURM_CLUSTERS"):
        wanted = os.environ.get(variable, "")
        if wanted and wanted.lower() != cluster.name(CLUSTER_S):
            raise UsageError(f"{variable}={wanted}: jobs on another cluster are not built yet",
                             hint=f"submit from a login node of that cluster, or, for this one: unset {variable}")


def _submit(resolved: Resolved, cwd: str, git: GitFacts, cluster: ClusterName) -> tuple[runfolder.Run, str]:
    folder, unfinished = _free_folder(Path(resolved.config["run_dir"]))
    resolved.config["run_dir"] = str(folder)
    if unfinished is not None:
        return _go_on(unfinished, _what_differs(unfinished, resolved), cwd, cluster)
    run_id = os.urandom(4).hex()   # as secrets does, whose import (OpenSSL) takes 5 ms
    plan, text = render(resolved, run_id)
    facts = git.collect(GIT_BEFORE_S)
    in_meta = facts is not None and not (facts and plan.kill_switch.group)   # a diff can show an old value of env
    meta: dict[str, Any] = {
        "v": 1, "run_id": run_id, "name": plan.name, "submitted_t": round(time.time(), 3), "cwd": cwd,
        "config": hide_values(resolved.config),
        "origins": {key: asdict(origin) for key, origin in resolved.origins.items()},
        "versions": {"safelaunch": __version__, "python": sys.version.split()[0]},
        "git": facts if in_meta else "git.json", "rules": _packs(),
        "cluster_name": None if plan.cluster == "local" else cluster.name(CLUSTER_S) or None,
    }
    run = runfolder.create(folder, meta, plan, text, os.environ)
    submission = Submission(run, os.environ, cwd, _say)
    try:
        ownership.require(folder)   # it may have been there before, open to others
        job = submission.submit()
    except (SlurmRefused, RunFolderError):
        if not submission.may_be_in:
            runfolder.unmake(folder)
        raise
    registry.register(folder, plan.name, run_id, job, run.cluster)
    if not in_meta:
        late = facts or git.collect(GIT_AFTER_S)
        try:
            runfolder.keep_git(folder, late if late is not None else {"error": "git took too long"})
        except OSError as error:
            _say(f"beware: job {job} is submitted, but {folder / 'git.json'} could not be written: {error}")
    return run, job


def _packs() -> list[dict[str, Any]]:
    """The rules of this site's and user's rule packs, for the supervisor's verdicts; bad ones hold up no training."""
    try:
        return rulepacks.dump(rulepacks.load_packs())
    except ConfigError as error:
        _say(f"beware: the supervisor will do without rule packs: {error.message}")
        return []


def _what_differs(run: runfolder.Run, resolved: Resolved) -> str | None:
    """What of a submission that was cut off is not what would be submitted now; None = nothing."""
    if json.loads(json.dumps(hide_values(resolved.config))) != hide_values(run.meta["config"]):
        return "the configuration"
    script_now = render(resolved, run.plan.run_id)[1]
    return None if sharedfile.read(run.dir / "job.sbatch").decode() == script_now else "the job script"


def _go_on(run: runfolder.Run, differs: str | None, cwd: str, cluster: ClusterName) -> tuple[runfolder.Run, str]:
    """Finish a submission whose outcome nobody knows: look for the job first, where it can be."""
    if run.cluster and cluster.name(CLUSTER_S) not in ("", run.cluster):
        raise RunFolderError(f"{run.dir} holds a submission to cluster {run.cluster} that was cut off, and this is "
                             f"{cluster.name()}", hint="submit it there, or choose another name or run_dir")
    _say(f"{run.dir} holds a submission that was cut off: looking for its job")
    submission = Submission(run, os.environ, str(run.meta.get("cwd", cwd)), _say)
    job = None if run.plan.cluster == "local" else submission.find()
    if job is not None and differs is not None:
        _say(f"beware: job {job} got in then; {differs} has changed since, and it does not have the change")
    elif job is None and differs is not None:
        raise RunFolderError(f"{run.dir} holds a submission that was cut off before its job got in, and {differs} has "
                             f"changed since: nothing was submitted",
                             hint=f"choose another name or run_dir, or remove it: rm -r {shlex.quote(str(run.dir))}")
    if job is None:
        job = submission.submit()
    registry.register(run.dir, run.plan.name, run.plan.run_id, job, run.cluster)
    return run, job


def _free_folder(wanted: Path) -> tuple[Path, runfolder.Run | None]:
    """The first of RUN_DIR, RUN_DIR-2, … without a run, and the run there if its submission was cut off.

    An ended run stays as it is; a living one is never doubled.
    """
    for number in range(1, 10_000):
        folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        if not runpath.is_run_folder(folder):
            return folder, None
        run = _load(folder)
        state = run.state()
        if not state.jobs and state.ended is None:
            ownership.require(folder)   # its script would be sent
            return folder, run
        if state.ended is None:
            raise RunFolderError(f"{folder} holds a run that has not ended",
                                 hint=f"see it: safelaunch status {folder}   end it: safelaunch stop {folder}")
    raise RunFolderError(f"{wanted} and 9,999 more hold ended runs", hint="choose another name or run_dir")


def _load(folder: Path) -> runfolder.Run:
    """The run that is in the way; raises RunFolderError, with a way round where it is somebody else's."""
    try:
        return runfolder.load(folder)
    except RunFolderError as error:
        if isinstance(error.__cause__, PermissionError):
            raise RunFolderError(error.message, hint=runfolder.OWN_FOLDER) from error
        raise


def _report(run: runfolder.Run, job: str, as_json: bool) -> None:
    cwd = str(run.meta.get("cwd", "/"))
    if as_json:
        start = _start_of(run.plan, cwd)
        click.echo(json.dumps({"v": 1, "job": job, "run_id": run.plan.run_id, "name": run.plan.name,
                               "cluster": run.plan.cluster, "cluster_name": run.cluster or None,
                               "run_dir": str(run.dir), "resume": start.public if start else None}))
        return
    click.echo(f"Submitted batch job {job}")
    _say(f"run {run.plan.name} ({run.plan.run_id}) in {run.dir}")
    start = _start_of(run.plan, cwd)
    for line in start.lines if start else ():
        _say(f"  {line}")
    _say(f"  see it: safelaunch status {run.plan.name}   its log: safelaunch logs -f {run.plan.name}   "
         f"end it: touch {run.plan.kill_file}")


def _start_of(plan: Plan, cwd: str) -> FirstStart | None:
    """Where the first attempt will start; None where the run does not resume."""
    if plan.resume.dir is None:
        return None
    from safelaunch.views import firststart  # what a run without resume does not need

    return firststart.look(plan, cwd)


def _say(text: str) -> None:
    click.echo(clean(text), err=True)
