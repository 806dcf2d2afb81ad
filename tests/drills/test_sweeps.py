"""Sweeps, and runs that wait for others, on a real Slurm."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from safelaunch.run.io import runfolder
from safelaunch.run.io.runfolder import Run
from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import crash, long_only, tell_last
from tests.runs import ALICE, Drill, Installation, Submitter, parent_of
from tests.sandboxes import make_workdir

SHORT = "--steps 5 --step-time 0.01 --save-every 2"
UNTIL_TOLD = "--steps 100000 --step-time 0.05 --save-every 10 --until last --handle-usr2"
STOPS = "restart: {policy: {user_code: stop}}\n"


class SweepDrill:
    """One sweep of sl-alice's, in a folder of its own."""

    def __init__(self, sandbox: Sandbox, installation: Installation, yaml: str) -> None:
        self.sandbox, self.installation, self.folder = sandbox, installation, make_workdir(sandbox)
        self.env = {**installation.env, "XDG_STATE_HOME": f"{self.folder}/.state"}
        (self.folder / "train.yaml").write_text(yaml)
        told = json.loads(self.typed("submit", "train.yaml", "--json"))
        self.runs = [Drill(sandbox, installation, self.folder, Path(one["run_dir"]), one["job"], env=self.env)
                     for one in told["runs"]]

    def typed(self, *words: str, code: int = 0) -> str:
        done = self.sandbox.run([*self.installation.argv, *words], cwd=self.folder, user=ALICE, env=self.env,
                                timeout_s=240)
        assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}\n{self.story()}"
        return done.stdout

    def json(self, *words: str, code: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.typed(*words, "--json", code=code))
        return found

    def story(self) -> str:
        queue = self.sandbox.slurm(["squeue", "-h", "-o", "%i %j %T %r %E"])
        return "\n".join([*(run.story() for run in getattr(self, "runs", ())), queue])


def trained_at_a_time(runs: list[Run]) -> int:
    """The most attempts that lived at once, by the journals."""
    marks: list[tuple[float, int]] = []
    for run in runs:
        for one in run.state().attempts:
            marks += [(one.started_t, 1), (one.ended_t or float("inf"), -1)]
    most = now = 0
    for _, step in sorted(marks):
        now += step
        most = max(most, now)
    return most


def test_a_sweep_trains_two_points_at_a_time_through_a_bug_and_the_crash_of_a_node(
    sandbox: Sandbox, installation: Installation
) -> None:
    bug = "$([[ $seed == 1 ]] && echo --die-at 2 --die-attempt 0 --raise)"
    hold = "$([[ $seed == 0 ]] && echo --steps 100000 --until last)"
    drill = SweepDrill(sandbox, installation, (
        "name: many\n"
        f"command: {installation.trainer} --steps 8 --step-time 0.02 --save-every 2 --lockstep sync-$seed "
        f"--stamp-dir stamps-$seed --ckpt $CKPT {bug} {hold} ${{RESUME_ARGS}}\n"
        'env: {CKPT: "ckpt/${name}"}\n'
        "slurm: {nodes: 2, ntasks_per_node: 1, time: 30}\nlaunch: {with: srun}\n"
        'resume: {dir: "ckpt/${name}", format: torch, args: "--load {path}"}\n'
        f"sweep: {{seed: 0-3}}\nmax_parallel: 2\n{STOPS}"))
    first = drill.runs[0]
    assert [run.run_dir.name for run in drill.runs] == [f"many-seed{seed}" for seed in range(4)]
    first.wait_event("submitted", 2)
    first.wait_event("attempt_started")
    first.wait_step(4)
    drill.runs[3].wait_end()   # the other lane, whose runs may have the same nodes
    crash(sandbox, first.state().attempts[0].nodes[1])
    first.wait_event("attempt_started", 2, timeout_s=90)
    seen = drill.json("status", "many")
    assert [row["values"] for row in seen["points"]] == [{"seed": str(seed)} for seed in range(4)]
    assert not drill.runs[2].events("attempt_started"), "the first run keeps its lane in its second job"
    tell_last(drill.folder, 1)

    ended = drill.json("wait", "many", "--timeout", "120s", code=10)
    assert [one["state"] for one in ended["runs"]] == ["completed", "gave_up", "completed", "completed"], first.story()
    assert trained_at_a_time([runfolder.load(run.run_dir) for run in drill.runs]) == 2
    causes = drill.json("why", "many")["causes"]
    assert [(one["category"], one["failed"]) for one in causes if one["failed"]] == [("user_code", ["many-seed1"])]
    assert drill.json("status", "many")["counts"] == {"completed": 3, "gave_up": 1}


def test_a_sweep_that_is_stopped_leaves_nothing_in_the_queue(sandbox: Sandbox, installation: Installation) -> None:
    drill = SweepDrill(sandbox, installation, (
        "name: many\n"
        f"command: {installation.trainer} --steps 100000 --step-time 0.05\n"
        "slurm: {nodes: 1, time: 30}\nsweep: {lr: [1e-4, 3e-4], seed: 0-1}\nmax_parallel: 1\n"))
    drill.runs[0].wait_event("attempt_started")
    drill.typed("stop", "--now", "many")
    for run in drill.runs:
        assert run.wait_end().ended and run.state().name == "stopped", run.story()
    assert [len(run.state().attempts) for run in drill.runs] == [1, 0, 0, 0]


def test_a_run_starts_after_another_that_completes_in_its_second_job(sandbox: Sandbox, submit: Submitter) -> None:
    first = submit(sandbox)(UNTIL_TOLD, nodes=1, tasks=1)
    first.wait_event("submitted", 2)
    second = submit(sandbox)(SHORT, overrides=("--after", str(first.run_dir)), nodes=1, tasks=1, wait_started=False)
    third = submit(sandbox)(SHORT, overrides=("--after", str(first.run_dir)), nodes=1, tasks=1, wait_started=False)
    # One that starts too early, because nobody has told Slurm of the first one's jobs, goes back into the queue.
    sandbox.slurm(["scontrol", "update", f"JobId={third.job}", "Dependency=singleton"])
    third.wait_event("handed_over", timeout_s=60)
    first.wait_step(12)
    sandbox.slurm(["scancel", "--batch", "--signal=USR2", first.job])   # as before its time limit
    first.wait_event("job_started", 2, timeout_s=60)
    first.wait_event("submitted", 3)
    waits = f"afterany:{first.events('submitted')[2].data['job']}"
    second.wait_for(lambda: waits in sandbox.slurm(["squeue", "-h", "-j", second.job, "-o", "%E"]), 30,
                    "it does not wait for the newest job")
    assert not second.events("job_started")
    first.wait_event("attempt_started", 2)
    tell_last(first.folder, 1)

    ended = first.wait_end().ended
    assert ended and ended.how == "completed", first.story()
    for run in (second, third):
        end = run.wait_end().ended
        assert end and end.how == "completed", run.story()
        assert run.state().attempts[0].started_t >= ended.t
    assert len(second.events("job_started")) == 1


def test_what_follows_a_run_that_fails_is_what_was_asked(sandbox: Sandbox, submit: Submitter) -> None:
    first = submit(sandbox)("--steps 9 --step-time 0.2 --die-at 8 --die-attempt 0 --raise", nodes=1, tasks=1,
                            extra=STOPS)
    well, anyhow = (submit(sandbox)(SHORT, overrides=(word, str(first.run_dir)), nodes=1, tasks=1, wait_started=False)
                    for word in ("--after", "--after-any"))
    bad, good = (run.wait_end().ended for run in (well, anyhow))
    assert bad and (bad.how, len(well.state().attempts)) == ("gave_up", 0), well.story()
    assert "has ended: gave_up" in bad.why
    assert good and (good.how, len(anyhow.state().attempts)) == ("completed", 1), anyhow.story()
    assert first.state().name == "gave_up"


def test_a_person_stops_the_run_before_and_one_that_waits(sandbox: Sandbox, submit: Submitter) -> None:
    first = submit(sandbox)(UNTIL_TOLD, nodes=1, tasks=1)

    def follow(word: str) -> Drill:
        return submit(sandbox)(SHORT, overrides=(word, str(first.run_dir)), nodes=1, tasks=1, wait_started=False)

    well, anyhow, stopped = follow("--after"), follow("--after-any"), follow("--after")
    assert stopped.as_user("stop", str(stopped.run_dir)).returncode == 0, stopped.story()
    assert stopped.wait_end().name == "stopped" and not stopped.state().attempts
    assert stopped.job not in sandbox.slurm(["squeue", "-h", "-o", "%i"]).split()
    assert first.state().ended is None and not well.events("job_started"), first.story()

    assert first.as_user("stop", str(first.run_dir)).returncode == 0, first.story()
    bad, good = (run.wait_end().ended for run in (well, anyhow))
    assert bad and bad.how == "gave_up" and "has ended: stopped" in bad.why, well.story()
    assert good and good.how == "completed", anyhow.story()
    assert not well.state().attempts


def kill_job(first: Drill) -> None:
    """The leader, and the shell that would start it again: nobody writes down how the job ends."""
    leader = first.leader()
    for pid in (parent_of(leader), leader):
        first.kill(pid)


def test_a_run_waits_for_the_next_job_of_one_whose_supervisor_died(sandbox: Sandbox, submit: Submitter) -> None:
    first = submit(sandbox)(UNTIL_TOLD, nodes=1, tasks=1)
    first.wait_event("submitted", 2)
    second = submit(sandbox)(SHORT, overrides=("--after", str(first.run_dir)), nodes=1, tasks=1, wait_started=False)
    first.wait_step(12)
    kill_job(first)
    first.wait_event("attempt_started", 2, timeout_s=90)
    assert not second.state().attempts
    tell_last(first.folder, 1)
    ended, after = first.wait_end().ended, second.wait_end()
    assert ended and ended.how == "completed", first.story()
    assert after.ended and after.ended.how == "completed" and after.attempts[0].started_t >= ended.t, second.story()


@long_only
def test_a_run_whose_supervisor_and_next_job_are_gone_is_lost_after_a_minute(
    sandbox: Sandbox, submit: Submitter
) -> None:
    first = submit(sandbox)(UNTIL_TOLD, nodes=1, tasks=1)
    queued = str(first.wait_event("submitted", 2).data["job"])
    well, anyhow = (submit(sandbox)(SHORT, overrides=(word, str(first.run_dir)), nodes=1, tasks=1, wait_started=False)
                    for word in ("--after", "--after-any"))
    first.kill(first.leader(), signal.SIGSTOP)   # else it sees that its next job is cancelled
    sandbox.slurm(["scancel", queued])
    kill_job(first)
    bad, good = (run.wait_end(240).ended for run in (well, anyhow))
    assert bad and bad.how == "gave_up" and "nobody knows how it ended" in bad.why, well.story()
    assert good and good.how == "completed", anyhow.story()
    assert first.state().ended is None
