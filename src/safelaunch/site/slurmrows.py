"""What the settings of a site's Slurm mean for a run: one table, a judgement for each. Facts in, rows out.

A setting that is not known has a row only where a run depends on it. The keys are those of slurm.conf(5).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from safelaunch.base.timing import LEASE_S
from safelaunch.site.siteanswers import SiteAnswers, SiteLimit
from safelaunch.site.sitefolder import CAUTION, NOT_SAFE, OK, UNKNOWN, SiteRow
from safelaunch.slurm import slurmwords
from safelaunch.slurm.via import is_dependency_refused

OVERLAP_SINCE = (20, 11)    # srun's --overlap: RELEASE_NOTES of Slurm 20.11
LATE_S = 600                # a dead node that Slurm notices after ten minutes: twice its default of 300 s
FORGETS_S = 60              # squeue is asked once a minute
SHORT_KILL_S, LONG_KILL_S = 10, 60     # KillWait: 30 s by default
UNKILLABLE_S = 120          # ranks that dump core, or wait for a frozen filesystem, take minutes to die
FEW_JOBS = 10
T = TypeVar("T")
LEASE_WORDS = f"is suspended for longer than a lease ({LEASE_S:g} s) is ended and goes on from its checkpoint"


class Judged(NamedTuple):
    """A verdict with what was found, what that means, and the setting that follows: of train.yaml, or a request."""

    verdict: str
    found: str
    means: str
    setting: str = ""


def judge_slurm(answers: SiteAnswers) -> tuple[SiteRow, ...]:
    """A row for each that has something to tell, in the order of the table."""
    judged = ((name, judge(answers)) for name, judge in ROWS.items())
    return tuple(SiteRow(name, one.verdict, one.found, one.means, one.setting) for name, one in judged if one)


def _release(site: SiteAnswers) -> Judged | None:
    version = site.word("SLURM_VERSION")
    if version is None:
        return Judged(UNKNOWN, "Slurm's configuration could not be read",
                      "what follows from it is not known: try scontrol show config")
    number = tuple(int(part) if part.isdecimal() else 0 for part in version.split(".")[:2])
    if number < OVERLAP_SINCE:
        return Judged(CAUTION, f"Slurm {version} has no srun --overlap",
                      "no standby and no helper steps: a hang check sees no ranks, and a silent node delays a restart "
                      "until Slurm gives it up")
    if not slurmwords.is_known(version):
        return Judged(CAUTION, f"Slurm {version}", "its messages were not tried: those that cannot be read count as "
                                                   "unknown, and Slurm is asked instead")
    return Judged(OK, f"Slurm {version}", "its messages are known")


def _accounting(kind: str) -> Judged:
    if not kind or kind.endswith("/none"):
        return Judged(CAUTION, "accounting is off", "sacct cannot tell how a job ended; squeue can, for MinJobAge. "
                      "If the shared folder is away meanwhile, a person's cancel of a waiting job can be missed",
                      "end runs by `safelaunch stop`, not by scancel")
    return Judged(OK, kind, "sacct tells how jobs ended")


def _min_job_age(age_s: int) -> Judged:
    if 0 < age_s < FORGETS_S:
        return Judged(CAUTION, f"MinJobAge={age_s} s", "squeue forgets an ended job before it is asked again: without "
                      "accounting its end is unknown", "end runs by `safelaunch stop`, not by scancel")
    return Judged(OK, f"MinJobAge={age_s} s", "squeue tells for that long how a job ended")


def _requeue(value: str) -> Judged:
    return Judged(OK, f"JobRequeue={value}", "it is only a default: a run's jobs say themselves whether Slurm may "
                                             "requeue them")


def _bad_exit(value: str) -> Judged:
    return Judged(OK, f"KillOnBadExit={value}", "an attempt sets it itself: a rank that dies ends the step",
                  "srun.kill_on_bad_exit")


def _kill_wait(wait_s: int) -> Judged:
    found = f"KillWait={wait_s} s"
    if wait_s < SHORT_KILL_S:
        return Judged(CAUTION, found, "after a cancel by Slurm a training has that long to save; before a time limit "
                      "safelaunch asks for a checkpoint itself", "kill_switch: {signal, grace}; end runs by "
                                                                 "`safelaunch stop`")
    if wait_s > LONG_KILL_S:
        return Judged(CAUTION, found, "ranks that ignore SIGTERM delay a restart for that long",
                      "let the training end at SIGTERM")
    return Judged(OK, found, "from SIGTERM to SIGKILL of a step")


def _unkillable(limit_s: int) -> Judged:
    found = f"UnkillableStepTimeout={limit_s} s"
    if limit_s < UNKILLABLE_S:
        return Judged(CAUTION, found, 'a node whose ranks take longer to die (a core dump, a frozen filesystem) is '
                      'drained: "Kill task failed"', "spare_nodes: 1, and `ulimit -c 0` in setup")
    return Judged(OK, found, "Slurm drains a node whose ranks take longer to die")


def _slurmd_timeout(limit_s: int) -> Judged:
    if limit_s == 0:
        return Judged(CAUTION, "SlurmdTimeout=0", "Slurm never gives up a silent node: its job stays in COMPLETING, "
                      "and only the standby and the run's own exclude list get round it", "standby: true, "
                                                                                         "spare_nodes: 1")
    if limit_s > LATE_S:
        return Judged(CAUTION, f"SlurmdTimeout={limit_s} s", "Slurm notices a dead node that late; safelaunch does in "
                      "seconds, as long as one supervisor lives", "standby: true")
    return Judged(OK, f"SlurmdTimeout={limit_s} s", "Slurm notices a dead node after that; safelaunch in seconds")


def _return(value: str) -> Judged:
    if value == "0":
        return Judged(CAUTION, "ReturnToService=0", "a node that was lost stays down until an administrator resumes it",
                      "spare_nodes: 1")
    return Judged(OK, f"ReturnToService={value}", "a node that comes back is used again")


def _submit(site: SiteAnswers) -> Judged | None:
    if site.plain is None:
        return Judged(UNKNOWN, "sbatch --test-only gave no answer", "whether a job would be taken is not known")
    if site.plain:
        return Judged(CAUTION, f"sbatch refuses a test job: {site.plain}", "options of your site are missing, perhaps",
                      "give them: safelaunch doctor -- --account=… --partition=…")
    return Judged(OK, "sbatch would take a job", "")


def _dependency(site: SiteAnswers) -> Judged | None:
    extra = ",".join(word for key in ("DependencyParameters", "SchedulerParameters") for word in site.words(key) or ()
                     if "depend" in word)
    if site.dependent is None or (site.plain and site.dependent):
        return Judged(UNKNOWN, "sbatch --test-only gave no clear answer", "whether the next job may wait behind this "
                      "one is not known: a run finds out by itself", "restart: {via: auto}")
    if site.dependent:
        words = "refuses a dependency" if is_dependency_refused(site.dependent) else "refuses a job that waits"
        return Judged(CAUTION, f"sbatch {words}: {site.dependent}", "no next job can be queued behind this one; what "
                      "remains: it is submitted, or this one requeued, when this one ends. A lost batch host and "
                      "standby then need a watch", "restart: {via: auto}; safelaunch watch --once in cron")
    return Judged(OK, "dependencies are accepted" + (f" ({extra})" if extra else ""),
                  "the next job waits in the queue behind the one that runs")


def _max_submit(site: SiteAnswers) -> Judged | None:
    enforced = site.words("AccountingStorageEnforce")
    if enforced is not None and not {"limits", "safe", "qos", "all"} & set(enforced):
        return Judged(OK, "limits are not enforced", "any number of jobs may wait")
    if site.limits is None:
        return Judged(UNKNOWN, "sacctmgr gave no clear answer", "how many jobs you may have is not known: a run finds "
                      "out by itself", "restart: {via: auto}")
    least = min((one for one in site.limits if one.max_submit is not None), key=_submits, default=None)
    if least is None:
        return Judged(OK, "no limit of your account or QOS", "any number of jobs may wait")
    found = f"MaxSubmitJobs={least.max_submit} ({least.where})"
    if _submits(least) <= 1:
        return Judged(CAUTION, found, "no second job can wait behind this one: it is requeued at its end",
                      "restart: {via: requeue}")
    runs = _submits(least) // 2
    if _submits(least) <= FEW_JOBS:
        return Judged(CAUTION, found, f"a run has two jobs, one that runs and one that waits: {runs} "
                      f"run{'s' if runs > 1 else ''} at a time", "restart: {via: resubmit} has one job a run")
    return Judged(OK, found, f"a run has two jobs: {runs} runs at a time")


def _submits(limit: SiteLimit) -> int:
    return limit.max_submit if limit.max_submit is not None else 1 << 30


def _preemption(site: SiteAnswers) -> Judged | None:
    kind, mode = site.word("PreemptType"), site.words("PreemptMode")
    if kind is None or mode is None:
        return None
    if not kind or kind.endswith("/none"):
        return Judged(OK, "no preemption", "only a person, a limit or a failure ends a job")
    own = (site.of_partition("PreemptMode") or "").lower()
    mode = tuple(own.split(",")) if own and own != "(null)" else mode
    found = f"{kind}, {','.join(mode).upper()}"
    if "off" in mode:
        return Judged(OK, found, "jobs of this partition are not preempted")
    if "suspend" in mode or "gang" in mode:
        return Judged(CAUTION, found, f"a job of yours that {LEASE_WORDS}; that costs no budget",
                      "write checkpoints often")
    grace = site.of_partition("GraceTime")
    grace_s = int(grace) if grace and grace.isdecimal() else 0
    if grace_s:
        return Judged(CAUTION, f"{found}, GraceTime={grace_s} s", "a preempted job has that long to save, and the run "
                      "goes on in its next job; that costs no budget", "let the training save on SIGTERM")
    return Judged(CAUTION, found, "a preempted job ends at once and goes on in its next job from its last checkpoint; "
                                  "that costs no budget", "write checkpoints often")


def _private(words: tuple[str, ...]) -> Judged:
    if "nodes" in words:
        return Judged(CAUTION, f"PrivateData={','.join(words)}", "nobody but an administrator sees the nodes: a "
                      "share of them is not known", 'suspects: {max_excluded: "2"}, a number instead of 10%')
    if "jobs" in words:
        return Judged(CAUTION, f"PrivateData={','.join(words)}", "teammates do not see your jobs: they find a run by "
                      "its folder, not by its job id", "tell them the run folder")
    return Judged(OK, f"PrivateData={','.join(words) or 'none'}", "teammates see your jobs and the nodes")


def _tracking(kind: str) -> Judged:
    if kind.endswith("/cgroup"):
        return Judged(OK, kind, "no process of a step outlives it")
    return Judged(CAUTION, kind, "processes that leave their parent outlive a step for Slurm; safelaunch finds and "
                                 "ends them by their mark before the next attempt")


def _confined(site: SiteAnswers) -> Judged | None:
    plugins = site.words("TaskPlugin")
    if plugins is None:
        return None
    if not any(word.endswith("cgroup") for word in plugins):
        return Judged(CAUTION, f"TaskPlugin={','.join(plugins) or 'none'}", "jobs on a node see each other's GPUs and "
                      "memory: another job's leftovers can fill yours", "exclusive in slurm, checks: {boot: true}")
    limits = [word for word in ("RAMSpace", "Devices", "Cores") if (site.word(f"Constrain{word}") or "").lower() ==
              "yes"]
    if "RAMSpace" in limits:
        return Judged(OK, f"cgroups confine {', '.join(limits)}", "the kernel ends what takes more memory than the job "
                      "has; supervisor and guards count in it", "slurm: {mem: …}")
    return Judged(OK, f"cgroups confine {', '.join(limits) or 'nothing that is known'}", "memory is shared by all jobs "
                                                                                        "of a node")


def _ports(ports: str) -> Judged:
    if ports not in ("", "0-0"):
        return Judged(CAUTION, f"SrunPortRange={ports}", "the site limits ports, perhaps by a firewall; guards connect "
                      "to the supervisor by a port of its own choice", "measure it: safelaunch doctor --job")
    return Judged(OK, "no range of ports", "what a firewall does: safelaunch doctor --job")


def _partition(site: SiteAnswers) -> Judged | None:
    if site.partition is None:
        return Judged(UNKNOWN, "no partition is known", "its limits are not known", "name one: --partition NAME")
    name, state = site.of_partition("PartitionName"), site.of_partition("State") or ""
    if state != "UP":
        return Judged(NOT_SAFE, f"{name} is {state or 'in no known state'}", "no job starts there")
    most_nodes = site.of_partition("MaxNodes")
    if most_nodes == "1":
        return Judged(CAUTION, f"{name}: MaxNodes=1", "no spare and no standby fit into a job: when its node "
                      "dies the run goes on in the next job", "spare_nodes: 0")
    limit = site.of_partition("MaxTime") or "not known"
    return Judged(OK, f"{name}: MaxTime={limit}", "a longer run goes on in its next job by itself")


def _submit_hosts(site: SiteAnswers) -> Judged | None:
    hosts = site.of_partition("AllocNodes")
    if hosts is None or hosts.upper() == "ALL":
        return None
    return Judged(CAUTION, f"AllocNodes={hosts}", "jobs may be submitted from these hosts only: where they are login "
                  "nodes, no supervisor can queue the next job", "safelaunch watch --once in cron on one of them")


def _of(read: Callable[[SiteAnswers, str], T | None], key: str,
        judge: Callable[[T], Judged]) -> Callable[[SiteAnswers], Judged | None]:
    """A row on one setting; there is none where Slurm does not tell it."""
    def row(site: SiteAnswers) -> Judged | None:
        value = read(site, key)
        return None if value is None else judge(value)

    return row


ROWS: dict[str, Callable[[SiteAnswers], Judged | None]] = {
    "release": _release,
    "partition": _partition,
    "sbatch": _submit,
    "dependencies": _dependency,
    "jobs": _max_submit,
    "submit hosts": _submit_hosts,
    "accounting": _of(SiteAnswers.word, "AccountingStorageType", _accounting),
    "MinJobAge": _of(SiteAnswers.seconds, "MinJobAge", _min_job_age),
    "preemption": _preemption,
    "requeue": _of(SiteAnswers.word, "JobRequeue", _requeue),
    "bad exit": _of(SiteAnswers.word, "KillOnBadExit", _bad_exit),
    "KillWait": _of(SiteAnswers.seconds, "KillWait", _kill_wait),
    "unkillable": _of(SiteAnswers.seconds, "UnkillableStepTimeout", _unkillable),
    "dead nodes": _of(SiteAnswers.seconds, "SlurmdTimeout", _slurmd_timeout),
    "lost nodes": _of(SiteAnswers.word, "ReturnToService", _return),
    "PrivateData": _of(SiteAnswers.words, "PrivateData", _private),
    "processes": _of(SiteAnswers.word, "ProctrackType", _tracking),
    "cgroups": _confined,
    "srun ports": _of(SiteAnswers.word, "SrunPortRange", _ports),
}
