"""`python -m tests.slurmwords.record [FILE]`: what the Slurm of this machine says, recorded on a sandbox. Takes root.

Each situation that safelaunch reads of is provoked once: ends of jobs, and commands that are answered or refused. The
file is tests/slurmwords/RELEASE.txt unless named. It takes about three minutes; most of that is a time limit of one
minute, with KillWait=2 and SlurmdTimeout=10.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from safelaunch.errors import SandboxError
from safelaunch.sandbox import daemons, users
from safelaunch.sandbox.cluster import Sandbox
from safelaunch.site.io import doctor
from safelaunch.slurm.io import slurm
from safelaunch.why.slurmfacts import ACCOUNT_FORMAT
from tests import admin
from tests.sandboxes import make_workdir, new_sandbox, wait_until
from tests.slurmwords.texts import FOLDER, render

CONF = {"KillWait": "2", "SlurmdTimeout": "10", "JobAcctGatherType": "jobacct_gather/linux",
        "JobAcctGatherFrequency": "1", "JobAcctGatherParams": "OverMemoryKill",
        "SelectTypeParameters": "CR_CPU_Memory"}
STEP = "srun --nodes={nodes} --ntasks={nodes} sleep 300"
ENDED = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "")
WAIT_S = 90.0


class Recorder:
    """One sandbox, and what was heard in it."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.texts: list[str] = []
        self.folder = make_workdir(sandbox)
        self.folder.chmod(0o777)   # jobs of more than one user

    # --- jobs -------------------------------------------------------------------------------------------------------

    def submit(self, *options: str, body: str = STEP, nodes: int = 2, user: str = "sl-alice") -> str:
        """The id of a job whose script is `body`; it has begun to run its step when this returns."""
        script = self.folder / f"script-{time.monotonic_ns()}"
        script.write_text(f"#!/bin/bash\n{body.format(nodes=nodes)}\n")
        words = ["sbatch", "--parsable", f"--nodes={nodes}", "--ntasks-per-node=1", "--mem=100",
                 f"--output={self.folder}/%j.out", "--open-mode=append", *options, str(script)]
        done = self.sandbox.run(words, user=user, cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def running(self, *options: str, body: str = STEP, nodes: int = 2) -> str:
        """A job whose step runs."""
        job = self.submit(*options, body=body, nodes=nodes)
        wait_until(lambda: f"{job}.0" in self.say("squeue", "--steps", "--noheader", "--format=%i").split(), WAIT_S,
                   f"job {job} started no step", every_s=0.2)
        time.sleep(1.0)   # its tasks, after their step
        return job

    def say(self, *words: str, user: str = "root") -> str:
        """What a command prints."""
        return self.sandbox.run(list(words), user=user, cwd=self.folder).stdout

    def state(self, job: str) -> str:
        """squeue's word; "" = it has forgotten the job."""
        return self.say("squeue", "--noheader", f"--jobs={job}", "--states=all", "--format=%T").strip()

    def wait_ended(self, job: str, words: Sequence[str] = ENDED) -> None:
        """Return once the job has ended, and some time for its last words has passed."""
        wait_until(lambda: self.state(job) in words, WAIT_S, f"job {job} did not end", every_s=0.3)
        time.sleep(1.0)

    # --- texts ------------------------------------------------------------------------------------------------------

    def note(self, name: str, job: str, text: str, rc: int | None = None) -> None:
        """Keep a text."""
        print(f"{name}: {text.strip()[:200]!r}", file=sys.stderr, flush=True)
        self.texts.append(render(name, job, rc, text))

    def note_output(self, name: str, job: str) -> None:
        """Keep what stands in the job's own output."""
        self.note(name, job, (self.folder / f"{job}.out").read_text(errors="replace"))

    def note_command(self, name: str, words: Sequence[str], job: str = "", user: str = "sl-alice",
                     cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command, and keep all that it says: stdout, then stderr."""
        done = self.sandbox.run(list(words), user=user, cwd=cwd or self.folder, timeout_s=120.0)
        text = (done.stdout + done.stderr).replace(str(self.folder), "/work")
        self.note(name, job, text, done.returncode)
        return done

    def end(self, name: str, act: Callable[[str], object], *options: str, body: str = STEP,
            until: Sequence[str] = ENDED, nodes: int = 2) -> str:
        """Run a job, end it by `act`, and keep its output."""
        job = self.running(*options, body=body, nodes=nodes)
        act(job)
        self.wait_ended(job, until)
        self.note_output(name, job)
        return job


def ends(one: Recorder) -> None:
    """How jobs and steps end: the lines in the job's own output."""
    say = one.say
    job = one.end("scancel", lambda job: say("scancel", job, user="sl-alice"))
    one.note_command("squeue-cancelled", slurm.squeue_job(job), job)
    one.note_command("job-cancelled", slurm.show_job(job), job)
    one.note_command("srun-in-ended-job", ["srun", f"--jobid={job}", "--overlap", "--nodes=1", "true"], job)
    one.note_command("scancel-ended-job", slurm.scancel(job), job)
    one.note_command("update-ended-job", slurm.update_job(job, ExcNodeList="n0"), job)
    one.note_command("requeue-ended-job", slurm.requeue(job), job)
    say("scancel", job)   # it is queued again
    one.end("scancel-by-root", lambda job: say("scancel", job))
    one.end("scancel-kill", lambda job: say("scancel", "--signal=KILL", job))
    one.end("scancel-batch-term", lambda job: say("scancel", "--signal=TERM", "--batch", job))
    one.end("scancel-full-term", lambda job: say("scancel", "--signal=TERM", "--full", job))
    one.end("scancel-step", lambda job: say("scancel", f"{job}.0"))
    one.end("scancel-step-term", lambda job: say("scancel", "--signal=TERM", f"{job}.0"))
    one.end("exclusive-step-killed", lambda job: None, body="srun --nodes={nodes} --kill-on-bad-exit=1 bash -c "
            "'[[ $SLURM_PROCID == 1 ]] && {{ sleep 3; exit 3; }}; sleep 300'")
    one.end("task-fails-wait", lambda job: None, body="srun --nodes={nodes} --kill-on-bad-exit=0 --wait=2 bash -c "
            "'[[ $SLURM_PROCID == 1 ]] && {{ sleep 3; exit 0; }}; sleep 300'")
    one.end("script-fails-over-step", lambda job: None, body=STEP + " & sleep 4; exit 5")
    one.end("script-ends-over-step", lambda job: None, body=STEP + " & sleep 4; exit 0")
    signals(one)
    job = one.end("requeue", lambda job: say("scontrol", "requeue", job, user="sl-alice"), "--requeue",
                  until=("PENDING",))
    one.note_command("squeue-requeued", slurm.squeue_job(job), job)
    one.note_command("hold-pending", slurm.hold(job), job)
    one.note_command("squeue-held", slurm.squeue_job(job), job)
    one.note_command("release-held", slurm.release(job), job)
    say("scancel", job)
    job = one.running("--no-requeue")
    one.note_command("requeue-refused", slurm.requeue(job), job)
    one.note_command("update-running-exclude", slurm.update_job(job, ExcNodeList="n0"), job)
    one.note_command("update-bad-node", slurm.update_job(job, NodeList="nosuch"), job)
    say("scancel", job)
    one.wait_ended(job)
    memory = "srun --nodes={nodes} --mem=20 python3 -c 'x = bytearray(80 << 20); import time; time.sleep(60)'"
    one.end("memory-of-step", lambda job: None, body=memory)


def helpers(one: Recorder) -> None:
    """Helper steps that take no GPU, in jobs that have some."""
    helper = f"srun --overlap --nodes=1 --ntasks=1 {' '.join(slurm.NO_GPUS)} echo the helper ran"
    for name, option in (("gpus-per-node", "--gpus-per-node=2"), ("gres", "--gres=gpu:2"), ("gpus", "--gpus=4")):
        job = one.submit(option, body=f"{helper}; echo its code is $?")
        one.wait_ended(job)
        one.note_output(f"helper-step-under-{name}", job)


def signals(one: Recorder) -> None:
    """Signals that end nothing must not read like an end."""
    trap = ('trap : USR1 USR2 CONT; srun --nodes={nodes} bash -c "trap : USR1 USR2; sleep 8; sleep 8" & '
            "wait; wait; wait")
    job = one.running(body=trap)
    one.say("scancel", "--signal=USR2", "--batch", job)
    one.say("scancel", "--signal=USR2", f"{job}.0")
    one.say("scancel", "--signal=CONT", job)
    time.sleep(2.0)
    one.note_output("signals-that-end-nothing", job)
    one.say("scancel", job)
    one.wait_ended(job)
    job = one.running()
    one.say("scontrol", "suspend", job)
    one.note_command("squeue-suspended", slurm.squeue_job(job), job)
    one.say("scontrol", "resume", job)
    time.sleep(1.0)
    one.note_output("suspended-and-resumed", job)
    one.say("scancel", job)
    one.wait_ended(job)


def nodes_and_limits(one: Recorder) -> None:
    """Ends that Slurm makes by itself: the time limit, preemption, nodes that fail."""
    say = one.say
    limited = one.running("--time=1", nodes=1)
    began = time.monotonic()
    for name, partition, grace_s in (("preempted", "low", 0), ("preempted-in-grace", "low", 20),
                                     ("preempted-requeued", "low-requeue", 0)):
        say("scontrol", "update", f"PartitionName={partition}", f"GraceTime={grace_s}")
        body = f"{STEP}; sleep 60" if grace_s else STEP   # a script that waits for the rest of its grace
        job = one.running(f"--partition={partition}", "--exclude=n0", "--requeue", body=body)
        urgent = one.submit("--partition=high", "--exclude=n0", "--exclusive", body="sleep 1", nodes=3)
        if grace_s:
            wait_until(lambda job=job: "CANCELLED" in (one.folder / f"{job}.out").read_text(), WAIT_S,   # type: ignore[misc]
                       "no grace", every_s=0.2)
            one.note_command("job-in-grace", slurm.show_job(job), job)
            one.note_command("squeue-in-grace", slurm.squeue_job(job), job)
        else:
            wait_until(lambda job=job: one.state(job) not in ("RUNNING", "COMPLETING"), WAIT_S,   # type: ignore[misc]
                       "no preemption", every_s=0.2)
        time.sleep(1.0)
        one.note_output(name, job)
        if not grace_s:
            one.note_command(f"squeue-{name}", slurm.squeue_job(job), job)
            one.note_command(f"job-{name}", slurm.show_job(job), job)
        say("scancel", job, urgent)
        one.wait_ended(job)
        one.wait_ended(urgent)
    one.wait_ended(limited)
    print(f"time limit after {time.monotonic() - began:.0f} s", file=sys.stderr)
    one.note_output("time-limit", limited)
    one.note_command("squeue-time-limit", slurm.squeue_job(limited), limited)
    one.note_command("job-time-limit", slurm.show_job(limited), limited)
    for name, node, options in (("worker-down", "n2", ("--nodelist=n1,n2",)),
                                ("batch-host-down", "n1", ("--nodelist=n1,n2",)),
                                ("worker-down-no-kill", "n2", ("--nodelist=n1,n2", "--no-kill"))):
        job = one.running("--no-requeue", *options)
        say("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=drill")
        if "--no-kill" in options:
            time.sleep(6.0)
        else:
            one.wait_ended(job)
        one.note_output(name, job)
        one.note_command(f"job-{name}", slurm.show_job(job), job)
        one.note_command(f"nodes-{name}", slurm.show_nodes(node), job)
        one.note_command(f"sinfo-{name}", slurm.sinfo(None), job)
        say("scancel", job)
        one.wait_ended(job)
        say("scontrol", "update", f"NodeName={node}", "State=RESUME")
    job = one.running("--no-requeue", "--nodelist=n1,n2")
    one.sandbox.crash("n1")
    one.wait_ended(job)
    one.note_output("batch-host-dead", job)
    one.note_command("sinfo-dead-node", slurm.sinfo(None), job)
    one.note_command("nodes-dead-node", slurm.show_nodes("n[0-3]"), job)
    one.sandbox.heal("n1")


def commands(one: Recorder) -> None:
    """Answers and refusals of commands."""
    for name in ("sbatch", "srun", "scontrol"):
        one.note_command(f"version-{name}", [name, "--version"])
    script = one.folder / "plain.sh"
    script.write_text("#!/bin/bash\nsleep 60\n")
    job = one.note_command("sbatch", slurm.sbatch(str(script), ["--nodes=1", "--mem=100", "--output=/dev/null"])).stdout
    job = job.strip()
    wait_until(lambda: one.state(job) == "RUNNING", WAIT_S, "the plain job does not run")
    for name, options in {
        "sbatch-bad-exclude": ["--exclude=nosuch"], "sbatch-bad-nodelist": ["--nodelist=nosuch"],
        "sbatch-bad-partition": ["--partition=nosuch"], "sbatch-too-many-nodes": ["--nodes=900"],
        "sbatch-bad-option": ["--nosuch=1"], "sbatch-bad-dependency": ["--dependency=afterany:1"],
        "sbatch-bad-time": ["--time=soon"],
    }.items():
        one.note_command(name, slurm.sbatch(str(script), ["--output=/dev/null", "--mem=100", *options]))
    name = one.say("squeue", "--noheader", f"--jobs={job}", "--format=%j").strip()
    one.note_command("squeue", slurm.squeue_job(job), job)
    one.note_command("squeue-by-name", slurm.squeue_by_name(name), job)
    one.note_command("squeue-watch", slurm.squeue_watch([name]), job)
    one.note_command("squeue-time-left", slurm.squeue_time_left(job), job)
    one.note_command("squeue-no-such-job", slurm.squeue_job("64000000"))
    one.note_command("job-running", slurm.show_job(job), job)
    one.note_command("job-no-such", slurm.show_job("64000000"))
    one.note_command("nodes", slurm.show_nodes("n[0-3]"), job)
    one.note_command("nodes-no-such", slurm.show_nodes("nosuch"))
    one.note_command("sinfo", slurm.sinfo(None))
    one.note_command("sacct-without-accounting", slurm.sacct([job]), job)
    one.note_command("scancel-no-such-job", slurm.scancel("64000000"))
    one.note_command("srun-in-another-users-job", ["srun", f"--jobid={job}", "--overlap", "true"], job, user="sl-bob")
    one.note_command("srun-busy", ["srun", f"--jobid={job}", "--overlap", "--nodes=1", "--immediate=2",
                                   "--cpus-per-task=64", "true"], job)
    one.note_command("srun-no-such-job", ["srun", "--jobid=64000000", "--overlap", "true"])
    one.say("scancel", job)
    silent(one, script)


def site(one: Recorder) -> None:
    """What `safelaunch doctor` asks of Slurm itself."""
    one.say("scancel", "--user=sl-alice")   # an sbatch that a stopped slurmctld has not answered may have made a job
    one.sandbox.wait_idle()                 # and nodes have to register with one that was started again
    for name, words in doctor.questions("sl-alice", None, ["--mem=100", "--output=/dev/null"]).items():
        one.note_command(f"site-{name}", words)
    one.note_command("site-too-many-nodes", slurm.test_only(["--nodes=900", "--wrap=true"]))


def silent(one: Recorder, script: Path) -> None:
    """What commands say of a slurmctld that is stopped, and of one that is gone."""
    controller = one.sandbox.machine(daemons.CONTROLLER)
    asked = {"squeue": slurm.squeue_job("1"), "scontrol": slurm.show_job("1"), "sinfo": slurm.sinfo(None),
             "scancel": slurm.scancel("1"), "sbatch": slurm.sbatch(str(script), ["--output=/dev/null"])}
    controller.stop()
    try:
        _all_at_once(one, "stopped-controller", asked)
    finally:
        controller.wake()
    admin.stop_ctl(one.sandbox)
    _all_at_once(one, "no-controller", asked)
    one.sandbox.heal("ctl")


def _all_at_once(one: Recorder, name: str, asked: dict[str, tuple[str, ...]]) -> None:
    begun = {what: one.sandbox.start(list(words), cwd=one.folder) for what, words in asked.items()}
    for what, process in begun.items():
        out, err = process.communicate(timeout=150)
        one.note(f"{what}-{name}", "", (out + err).replace(str(one.folder), "/work"), process.returncode)


def accounts(one: Recorder) -> None:
    """What sacct says, where accounts are kept."""
    jobs = {"scancel": one.end("scancel-with-accounts", lambda job: one.say("scancel", job, user="sl-alice")),
            "failed": one.end("failed-with-accounts", lambda job: None, body="srun --nodes={nodes} sleep 8; exit 3"),
            "completed": one.end("completed-with-accounts", lambda job: None, body="srun --nodes={nodes} sleep 8")}
    time.sleep(3.0)
    one.note_command("sacct", slurm.sacct(list(jobs.values())), jobs["scancel"])
    one.note_command("sacct-why", ["sacct", "--noheader", "--parsable2", f"--jobs={jobs['scancel']}",
                                   f"--format={ACCOUNT_FORMAT}"], jobs["scancel"])
    for name, words in doctor.questions("sl-alice", None, []).items():
        one.note_command(f"site-{name}-with-accounts", words)
    one.note_command("sbatch-bad-account", ["sbatch", "--parsable", "--account=nosuch", "--wrap=true"])
    one.sandbox.machine(daemons.DATABASE).kill()
    one.note_command("sacct-without-database", slurm.sacct(list(jobs.values())), jobs["scancel"])


def _with_accounts() -> list[str]:
    """The texts of a sandbox that keeps accounts; none where it cannot be had."""
    try:
        sandbox = new_sandbox(2, conf={"KillWait": "2"}, accounting=True)
    except (SandboxError, OSError) as unable:
        print(f"no accounts here: {unable}", file=sys.stderr)
        return []
    try:
        one = Recorder(sandbox)
        accounts(one)
        return one.texts
    finally:
        sandbox.down()


def main(argv: Sequence[str]) -> int:
    """Record all, and write the file."""
    users.ensure_users()
    sandbox = new_sandbox(4, conf=CONF, preemption=True)
    try:
        version = sandbox.slurm(["sbatch", "--version"]).strip()
        one = Recorder(sandbox)
        for part in (commands, site, helpers, ends, nodes_and_limits):
            part(one)
        texts = one.texts
    finally:
        sandbox.down()
    number = re.sub(r"^\S+ ", "", version)
    release = re.match(r"\d+\.\d+", number)
    assert release is not None, version
    path = Path(argv[0]) if argv else FOLDER / f"{release[0]}.txt"
    head = f"Slurm {number}, recorded by python -m tests.slurmwords.record.\n"
    path.write_text(f"{head}{''.join(texts)}")   # whatever becomes of the accounts
    texts += _with_accounts()
    path.write_text(f"{head}{''.join(texts)}")
    print(f"{len(texts)} texts in {path}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
