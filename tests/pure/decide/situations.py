"""What the tables of decide are asked about: a plan, runs with a past, and what a supervisor sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from safelaunch.base.model import Event, Exit, Request
from safelaunch.decide.facts.actions import Action
from safelaunch.decide.facts.seen import Live, Observation
from safelaunch.decide.turn import rows
from safelaunch.launch.settings import KillSwitch, LaunchPlan, PreservePlan, RestartPlan, Resume, Srun
from safelaunch.run.fold.folding import fold
from safelaunch.run.fold.state import State
from safelaunch.run.plan import Plan

NOW = 10_000.0
NODES = ("n0", "n1", "n2")
Said = list[tuple[str, dict[str, Any]]]
PLAN = Plan(
    run_id="r1", name="run", run_dir="/run", cluster="slurm", command="train", setup="", env=(), sbatch=(), nodes=2,
    gpus_per_node=None, cpus_per_task=None, ntasks_per_node=1, launch=LaunchPlan("srun", None, 3), srun=Srun(60, 1, ()),
    resume=Resume("ckpt", "auto", "--load {path}", None), step_pattern="auto",
    restart=RestartPlan(30, 3, 60.0, on_lost_progress="stop"),
    kill_switch=KillSwitch("control/kill", 900.0, None, "SIGUSR2"),
    preserve=PreservePlan(0.0, ("unknown", "hang"), "all"),
)
PRESERVING = PLAN._replace(preserve=PreservePlan(3600.0, ("unknown", "hang"), "all"))
ALIVE = Live(1, ("n0", "n1"), tasks=2)
BAD, GOOD = Exit("n1", 1, 1), Exit("n0", 0, 0)
LOST = (("n1", "its guard has been silent for 10 s"),)
KILL = Request("kill", "bob", NOW - 1)
KILL_NOW = Request("kill-now", "bob", NOW - 1)
CHECKPOINT = Request("checkpoint", "bob", NOW - 1)
RELEASE = Request("release", "bob", NOW - 1)


def history(
    *ends: str, checkpoint_after: Sequence[int] = (), last_ended: bool = True, category: str = "unknown"
) -> State:
    """The state after attempts that ended so; after each attempt of `checkpoint_after` its checkpoint has advanced."""
    said: Said = [("submitted", {"job": "11"}), ("job_started", {"job": "11", "nodes": NODES})]
    for number, how in enumerate(ends, start=1):
        said.append(("attempt_started", {"attempt": number, "job": "11", "nodes": ["n0", "n1"]}))
        if number < len(ends) or last_ended:
            said.append(("verdict", {"attempt": number, "category": category, "summary": "task 1 on n1: exit code 1"}))
            said.append(("attempt_ended", {"attempt": number, "how": how}))
        if number in checkpoint_after:
            said.append(("checkpoint", {"attempt": number, "step": number * 100}))
    return fold(Event(NOW - 60 + seq, 1, seq, "n0", event, data) for seq, (event, data) in enumerate(said))


def seen(live: Live | None = None, **more: Any) -> Observation:
    return Observation(now=NOW, nodes=NODES, live=live, **more)


def row(state: State, what: Observation, plan: Plan = PLAN) -> str:
    return rows.decide(state, what, plan).row


def action(state: State, what: Observation, plan: Plan = PLAN) -> Action | None:
    return rows.decide(state, what, plan).action


RUNNING = history("running", last_ended=False)
FAILED_ONCE = history("failed")
HOLD = Request("hold", "bob", NOW - 1)
