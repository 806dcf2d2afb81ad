"""Submitting a run: its folder is made, its job sent once, and a submission that was cut off is finished."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.base.io import sharedfile
from safelaunch.base.secretmask import hide_values
from safelaunch.config.io import bashtext
from safelaunch.config.resolve import Resolved
from safelaunch.errors import ConfigError, RunFolderError, SlurmRefused, UsageError
from safelaunch.extensions.io import plugins, rulepacks
from safelaunch.launch.settings import AfterRun, ChecksPlan, Settings, read_settings
from safelaunch.run import plan as plans
from safelaunch.run.io import local, ownership, registry, resumefolder, runfolder, runmaking, runpath
from safelaunch.run.io.clustername import ClusterName, FederatedName
from safelaunch.run.io.provenance import GitFacts
from safelaunch.run.io.questions import Questions
from safelaunch.run.plan import Plan
from safelaunch.script import script
from safelaunch.script.io import sitefiles
from safelaunch.script.io.submission import Submission
from safelaunch.slurm.io.slurm import Result
from safelaunch.version import __version__

if TYPE_CHECKING:
    from safelaunch.run.io.resumefolder import Turns
    from safelaunch.verbs.common.talk import Say

GIT_FILE = "git.json"
GIT_BEFORE_S, GIT_AGREED_S, GIT_AFTER_S = 0.02, 1.0, 10.0
_is_complete = lru_cache(64)(bashtext.is_complete)   # the points of a sweep have one command
Agree = Callable[[Resolved, Plan, str, GitFacts, str], None]   # ... the cluster's name
CLUSTER_S = 1.0   # a slurmctld that needs longer than this for its name may still accept a job


class Submitted(NamedTuple):
    """A run, and the id of its first job: a process' of this machine where it is a local one."""

    run: runfolder.Run
    job: str


class Waits(NamedTuple):
    """What a run waits for before its first attempt: runs, as in settings.AfterRun, and jobs of theirs in the queue."""

    after: tuple[AfterRun, ...] = ()
    jobs: tuple[str, ...] = ()


class QueueSlot:
    """What a run of a sweep hears from the one before it in its queue slot, and tells the next; this one is alone."""

    is_followed = False

    def note_made(self, plan: Plan) -> None:
        """The run is on disk; the next one may be made."""

    def await_job(self) -> tuple[str, ...]:
        """The job to wait for, once Slurm has taken it; raises RunFolderError where it never will."""
        return ()

    def note_sent(self, job: str) -> None:
        """Slurm has taken the run's first job."""


ALONE = QueueSlot()


@contextlib.contextmanager
def open_submission(say: Say, questions: Questions | None = None) -> Iterator[Sending]:
    """What all runs of one submission share; git and Slurm are asked from now on, unless they have been."""
    with contextlib.closing(questions or Questions(os.environ, str(Path.cwd()))) as asked, runmaking.Mark() as mark:
        sending = Sending(asked, say, mark)
        try:
            yield sending
        finally:
            if sending.turns is not None:
                sending.turns.close()


class Surroundings(NamedTuple):
    """What a job script is made with besides the plan."""

    template: str | dict[str, str]
    umask: int


def read_surroundings() -> Surroundings:
    """Raises TemplateError."""
    return Surroundings(sitefiles.read_template(os.environ.get("SAFELAUNCH_TEMPLATE")), sitefiles.umask())


def render(
    settings: Settings, run_id: str, cluster: str = "", given: Surroundings | None = None
) -> tuple[Plan, str]:
    """The plan of these settings, and the script that submit sends to this cluster; raises TemplateError. `given`: what
    is read once for all points of a sweep.
    """
    plan, given = plans.of_settings(settings, run_id), given or read_surroundings()
    srun: tuple[str, ...] = ("srun",)
    if plan.cluster == "local":
        srun = local.srun_words()
    text = script.render(given.template, plan, python=sitefiles.python(), library=sitefiles.library(), srun=srun,
                         umask=given.umask, is_complete=_is_complete, cluster=cluster)
    return plan, text


def choose_cluster(settings: Settings, say: Say) -> Settings:
    """Settle `cluster: auto`, and say so where it is not Slurm, so that no user trains on a login node by mistake."""
    if settings.cluster != "auto":
        return settings
    cluster = "slurm" if shutil.which("sbatch") else "local"
    if cluster == "local":
        say("cluster: auto takes this machine: there is no sbatch on the PATH (cluster=slurm insists on Slurm)")
    return settings.with_(cluster=cluster)


def stay_on_cluster(settings: Settings, federated: FederatedName, say: Say) -> Settings:
    """In a federation, keep the run's jobs on this cluster. Slurm would start each on whichever is free first, and
    there no supervisor, watch or verb could see what is left of the attempt before.
    """
    if not (name := federated.name(CLUSTER_S)):
        return settings
    say(f"{name} is in a federation: all jobs of the run stay on {name} (#SBATCH --clusters={name})")
    return _on_cluster(settings, name)


def _on_cluster(settings: Settings, name: str) -> Settings:
    return settings.with_(slurm={**settings.slurm, "clusters": name})


def _refuse_other_clusters(cluster: ClusterName) -> None:
    """Refuse what sbatch would take for another cluster: the run's other commands would ask this one."""
    for variable in ("SBATCH_CLUSTERS", "SLURM_CLUSTERS"):
        wanted = os.environ.get(variable, "")
        if wanted and wanted.lower() != cluster.name(CLUSTER_S):
            raise UsageError(f"{variable}={wanted}: jobs on another cluster are not built yet",
                             hint=f"submit from a login node of that cluster, or, for this one: unset {variable}")


class Sending:
    """One submission, of a run or of a sweep: what is asked once for all of its runs."""

    def __init__(self, questions: Questions, say: Say, mark: runmaking.Mark) -> None:
        self._questions, self._cwd, self._mark = questions, questions.cwd, mark
        self._talk, self._said = say, set[str]()
        self._cluster, self._federated = questions.cluster, questions.federated
        self._env = dict(os.environ)   # decoded once: a sweep needs it some times for each point
        self._told: dict[tuple[str, ...], Result] = {}
        self._rules: list[dict[str, object]] | None = None
        self._given: Surroundings | None = None
        self.turns: Turns | None = None
        self._lock = threading.Lock()   # of git's answer: the points of a sweep are sent by several threads

    def _say(self, text: str) -> None:
        """Once: what holds for one run of a submission, such as an excluded node, holds for most of them."""
        if text not in self._said:
            self._said.add(text)
            self._talk(text)

    def settle(self, resolved: Resolved) -> Resolved:
        """The config with where the run's jobs go; raises UsageError."""
        settings = choose_cluster(resolved.settings, self._say)
        settings = settings.with_(checks=_with_programs(settings.checks, self._say))
        if settings.cluster != "local":
            _refuse_other_clusters(self._cluster)
            settings = stay_on_cluster(settings, self._federated, self._say)
        return resolved._replace(settings=settings)

    def submit(self, resolved: Resolved, agree: Agree | None = None, waits: Waits | None = None,
               slot: QueueSlot = ALONE) -> Submitted:
        """Submit one run, or finish a submission of it that was cut off."""
        return self.begin(resolved, agree, waits, slot=slot)()

    def begin(self, resolved: Resolved, agree: Agree | None = None, waits: Waits | None = None,
              sweep: Mapping[str, object] | None = None, slot: QueueSlot = ALONE) -> Callable[[], Submitted]:
        """Make a run's folder; what comes back makes it durable and submits it. `sweep`: id, name, point, and of how
        many. One thread begins all points of a sweep: several would take turns in it, at a price.
        """
        waits = waits or Waits()
        folder, unfinished = free_folder(Path(resolved.settings.run_dir))
        settings = resolved.settings.with_(after=waits.after, run_dir=str(folder))
        if unfinished is not None and (kept := dict(unfinished.plan.sbatch).get("clusters")):
            settings = _on_cluster(settings, kept)   # Slurm may not have answered in time today
        resolved = resolved._replace(settings=settings)
        if unfinished is not None:
            slot.note_made(unfinished.plan)
            return partial(_go_on, unfinished, _what_differs(unfinished, resolved), self._cwd, self._cluster, self._say,
                           waits, slot)
        resume = self._take_folder(settings)
        run_id = registry.new_id()
        name = "" if settings.cluster == "local" else self._cluster.name(CLUSTER_S)
        self._given = self._given or read_surroundings()
        plan, text = render(settings, run_id, name, self._given)
        if agree is not None and plan.cluster != "local":
            self._let_agree(agree, resolved, plan, text, name)
        meta = self._meta(resolved, plan, name, sweep)
        new = runmaking.create(folder, meta, plan, text, self._env, is_followed=slot.is_followed, mark=self._mark)
        slot.note_made(plan)
        return partial(self._send, new, waits, slot, resume)

    def _take_folder(self, settings: Settings) -> str | None:
        """The folder of the run's checkpoints, which no other living run has; raises UsageError."""
        if settings.resume.dir is None:
            return None
        if settings.resume.step is not None:
            from safelaunch.verbs.common import resumepoints  # few start from a step of their own

            if (place := resumepoints.of_settings(settings)) is not None:
                resumepoints.of_step(resumepoints.look(place, resumepoints.MOST_ALL), settings.resume.step)
        if (folder := resumefolder.of_settings(settings, self._cwd)) is not None:
            self.turns = self.turns or resumefolder.Turns()
            self.turns.take(folder)
            if registry.with_resume(folder):
                from safelaunch.verbs.submit import samefolder  # few share one

                samefolder.refuse(folder, settings, self._say)
        return folder

    def _meta(
        self, resolved: Resolved, plan: Plan, cluster: str, sweep: Mapping[str, object] | None
    ) -> dict[str, object]:
        """What run.json holds."""
        with self._lock:
            facts = self._questions.git.collect(GIT_BEFORE_S)
        if self._rules is None:
            self._rules = _packs(self._say)
        in_meta = facts is not None and not (facts and plan.kill_switch.group)   # a diff can show an old value of env
        places = {origin: origin._asdict() for origin in set(resolved.origins.values())}
        return {
            "v": 1, "run_id": plan.run_id, "name": plan.name, "submitted_t": round(time.time(), 3), "cwd": self._cwd,
            "config": hide_values(resolved.config),
            "origins": {key: places[origin] for key, origin in resolved.origins.items()},
            "versions": {"safelaunch": __version__, "python": sys.version.split()[0]},
            "git": facts if in_meta else GIT_FILE, "rules": self._rules,
            "cluster_name": cluster or None, "sweep": sweep,
        }

    def show(self, resolved: Resolved, agree: Agree) -> None:
        """Let a person see what is to be sent of a sweep: its first point."""
        name = "" if resolved.settings.cluster == "local" else self._cluster.name(CLUSTER_S)
        plan, text = render(resolved.settings, "RUN", name)
        if plan.cluster != "local":
            self._let_agree(agree, resolved, plan, text, name)

    def _let_agree(self, agree: Agree, resolved: Resolved, plan: Plan, text: str, cluster: str) -> None:
        """Show the plan; git is asked anew after that: a person can read for long, and edit meanwhile."""
        git = self._questions.git
        agree(resolved, plan, text, git, cluster)
        shown = git.collect(0.0)
        git.close()
        git = self._questions.git = GitFacts(self._cwd)
        if shown is not None and (now := git.collect(GIT_AGREED_S)) is not None and now != shown:
            self._say("warning: the code has changed since the plan was shown: the run's record has it as it is now")

    def _send(self, new: runmaking.NewRun, waits: Waits, slot: QueueSlot, resume: str | None) -> Submitted:
        run = new.run
        submission = Submission(run, self._env, self._cwd, self._say, lambda: (*waits.jobs, *slot.await_job()),
                                slot.note_sent, self._told, new)
        with new.sync:
            try:
                ownership.require(run.dir)   # it may have been there before, open to others
                job = submission.submit()
            except (SlurmRefused, RunFolderError):
                if not submission.may_be_in:
                    runmaking.unmake(run.dir)
                raise
        registry.register(run.dir, run.plan.name, run.plan.run_id, job, run.cluster, run.meta["sweep"], resume)
        if run.meta["git"] == GIT_FILE:
            self._keep_git(run, job)
        return Submitted(run, job)

    def _keep_git(self, run: runfolder.Run, job: str) -> None:
        with self._lock:
            facts = self._questions.git.collect(GIT_AFTER_S)
        try:
            runmaking.keep_git(run.dir, facts if facts is not None else {"error": "git took too long"})
        except OSError as error:
            self._say(f"warning: job {job} is submitted, but {run.dir / GIT_FILE} could not be written: {error}")


def _packs(say: Say) -> list[dict[str, object]]:
    """The rules of this site's and user's rule packs, for the supervisor's verdicts; bad ones hold up no training."""
    try:
        return rulepacks.dump(rulepacks.load_packs(say=lambda text: say(f"warning: {text}")))
    except ConfigError as error:
        say(f"warning: the supervisor has no rule packs: {error.message}")
        return []


def _with_programs(checks: ChecksPlan, say: Say) -> ChecksPlan:
    """With the checks of plugins, where any are wanted: no node needs the plugin."""
    if not checks.boot and checks.after_failure in ("auto", "off"):
        return checks
    found, notes = plugins.load_checks()
    for note in notes:
        say(f"warning: {note}")
    return checks._replace(programs=tuple({"name": name, **asdict(one)} for name, one in found.items()))


def _what_differs(run: runfolder.Run, resolved: Resolved) -> str | None:
    """What of a submission that was cut off is not what would be submitted now; None = nothing."""
    if json.loads(json.dumps(hide_values(resolved.config))) != hide_values(run.meta["config"]):
        return "the configuration"
    script_now = render(resolved.settings, run.plan.run_id, run.cluster)[1]
    return None if sharedfile.read(run.dir / "job.sbatch").decode() == script_now else "the job script"


def _go_on(run: runfolder.Run, differs: str | None, cwd: str, cluster: ClusterName, say: Say,
           waits: Waits, slot: QueueSlot) -> Submitted:
    """Finish a submission whose outcome is unknown: search its job first."""
    if run.cluster and cluster.name(CLUSTER_S) not in ("", run.cluster):
        raise RunFolderError(f"{run.dir} holds a submission to cluster {run.cluster} that was cut off, and this is "
                             f"{cluster.name()}", hint="submit it there, or choose another name or run_dir")
    say(f"{run.dir} holds a submission that was cut off: looking for its job")
    submission = Submission(run, os.environ, str(run.meta.get("cwd", cwd)), say,
                            lambda: (*waits.jobs, *slot.await_job()), slot.note_sent)
    job = None if run.plan.cluster == "local" else submission.find()
    if job is not None and differs is not None:
        say(f"warning: job {job} was submitted then; {differs} has changed since, and the job lacks the change")
    elif job is None and differs is not None:
        raise RunFolderError(f"{run.dir} holds a submission that was cut off before its job was submitted, and "
                             f"{differs} has changed since: nothing was submitted",
                             hint=f"choose another name or run_dir, or remove it: rm -r {shlex.quote(str(run.dir))}")
    if job is None:
        job = submission.submit()
    else:
        slot.note_sent(job)
    registry.register(run.dir, run.plan.name, run.plan.run_id, job, run.cluster, run.meta.get("sweep"),
                      resumefolder.of_settings(read_settings(run.meta["config"]), str(run.meta.get("cwd", cwd))))
    return Submitted(run, job)


def free_folder(wanted: Path) -> tuple[Path, runfolder.Run | None]:
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
    """The run in that folder; raises RunFolderError, with a hint if it is another user's."""
    try:
        return runfolder.load(folder)
    except RunFolderError as error:
        if isinstance(error.__cause__, PermissionError):
            raise RunFolderError(error.message, hint=runfolder.OWN_FOLDER) from error
        raise
