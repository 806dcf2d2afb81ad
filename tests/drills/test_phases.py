"""What takes longer than a step and is no hang: evaluations, checkpoints, a log that is kept back. And what is one."""

from __future__ import annotations

import pytest

from safelaunch.hangs.hang import HOLD_S, NAMED_S
from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import long_only
from tests.runs import Drill, Installation, Submitter

pytestmark = pytest.mark.slurm
SLACK_S = 45.0         # what the last look takes under load
IDLE = "--rest 0.05"   # steps that take time and hardly a core: where nothing is proven by the processor time of ranks


@pytest.fixture
def train(sandbox: Sandbox, submit: Submitter, installation: Installation):  # type: ignore[no-untyped-def]
    """`train(flags, overrides)`: a run of 2 nodes x `tasks` ranks of tests/trainers/phases.py."""
    def go(flags: str, overrides: tuple[str, ...] = (), tasks: int = 2) -> Drill:
        return submit(sandbox)(command=f"python3 -u {installation.root}/tests/trainers/phases.py {flags}",
                               overrides=overrides, tasks=tasks)
    return go


def said(drill: Drill) -> list[str]:
    """What the leader decided about hangs."""
    return [str(event.data["why"]) for event in drill.events("decision") if event.data.get("row") == "hang"]


def ends_well(drill: Drill, timeout_s: float = 400.0) -> None:
    """The run completes in its first attempt."""
    state = drill.wait_end(timeout_s)
    assert state.ended and state.ended.how == "completed", drill.story()
    assert len(drill.events("attempt_started")) == 1, drill.story()


def test_an_evaluation_of_seven_steps_that_the_log_names_alarms_nobody(train) -> None:  # type: ignore[no-untyped-def]
    drill = train(f"--steps 8 --step-time 9 --evaluate-at 7 --evaluation 63 {IDLE}")
    ends_well(drill)
    assert drill.events("hang_suspected") == [], drill.story()


@long_only
def test_an_evaluation_that_nobody_announced_is_looked_at_and_given_its_time(  # type: ignore[no-untyped-def]
        train) -> None:
    drill = train("--steps 48 --step-time 1 --evaluate-at 45 --evaluation 90 --quiet")
    ends_well(drill)
    assert len(drill.events("hang_suspected")) == 1, drill.story()
    assert [why for why in said(drill) if "the stacks show evaluation" in why or "still move" in why], drill.story()


@long_only
def test_a_checkpoint_of_forty_steps_alarms_nobody_and_is_not_looked_at_where_the_log_names_it(  # type: ignore[no-untyped-def]
        train) -> None:
    drill = train("--steps 38 --step-time 1.6 --save-at 18 --save 64")
    ends_well(drill)
    assert drill.events("hang_suspected") == [], drill.story()


@long_only
def test_a_checkpoint_that_nobody_announced_is_told_by_its_writers_bytes(train) -> None:  # type: ignore[no-untyped-def]
    drill = train("--steps 34 --step-time 1.6 --save-at 30 --save 90 --quiet")
    ends_well(drill)
    assert drill.events("hang_suspected"), drill.story()
    assert [why for why in said(drill) if "the stacks show checkpoint" in why or "read or written" in why
            or "still move" in why], drill.story()


@long_only
def test_a_log_that_is_kept_back_while_steps_go_on_ends_nothing(train) -> None:  # type: ignore[no-untyped-def]
    drill = train("--steps 150 --step-time 1 --hold-from 45 --hold-until 140")
    ends_well(drill)
    assert drill.events("hang_suspected"), drill.story()


def test_a_hang_into_which_nobody_may_look_is_told_by_main_threads_that_do_not_run(  # type: ignore[no-untyped-def]
        train) -> None:
    drill = train(f"--steps 40 --step-time 0.5 --hang-at 15 --closed {IDLE}", overrides=("hang.no_progress=20s",))
    found = drill.wait_event("verdict", timeout_s=200)
    assert found.data["category"] == "hang", drill.story()
    state = drill.wait_end(200)
    assert state.ended and state.ended.how == "completed", drill.story()
    assert [why for why in said(drill) if "no stack can be read" in why], drill.story()


def test_a_hang_is_noticed_within_a_minute_and_shown_before(train) -> None:  # type: ignore[no-untyped-def]
    drill = train(f"--steps 100000 --step-time 1 --hang-at 45 {IDLE}")
    drill.wait_step(44, timeout_s=200)
    step_t = _last_step_t(drill)
    found = drill.wait_event("hang_suspected", timeout_s=120)
    assert found.t - step_t <= 60, drill.story()
    shown = drill.as_user("status", str(drill.run_dir)).stdout
    drill.as_user("stop", str(drill.run_dir), "--now")
    assert "hang" in shown, shown


def _last_step_t(drill: Drill, step: int = 44) -> float:
    """When the log was written last; asked for at once, while the ranks stand still."""
    path = drill.run_dir / "attempts" / "0001" / "main.log"
    drill.wait_for(lambda: max(drill.steps(1), default=0) >= step, 30.0, f"no step {step}")
    return path.stat().st_mtime


@long_only
def test_a_hang_that_might_pass_is_ended_once_it_has_lasted(train) -> None:  # type: ignore[no-untyped-def]
    drill = train("--steps 60 --step-time 1 --hang-at 45")
    drill.wait_step(44, timeout_s=200)
    step_t = _last_step_t(drill)
    found = drill.wait_event("verdict", timeout_s=900)
    assert found.data["category"] == "hang" and NAMED_S <= found.t - step_t <= NAMED_S + SLACK_S, drill.story()
    state = drill.wait_end(300)
    assert state.ended and state.ended.how == "completed", drill.story()
    assert [why for why in said(drill) if "this may pass" in why], drill.story()


@pytest.mark.parametrize(
    ("flags", "hang_at", "tasks", "named", "after_s"),
    [("--poll 0.01", 45, 2, "rank 1 on ", NAMED_S), ("--poll 0.01 --hang-rank 0", 45, 2, "rank 0 on ", NAMED_S),
     ("--poll 0.01 --hang-rank 1 2", 45, 3, "2 ranks (1-2) ", NAMED_S), ("--poll 0", 45, 1, "rank 1 on ", NAMED_S),
     ("--poll 5", 12, 2, "rank 1 on ", NAMED_S), ("--poll 0.01 --closed", 45, 2, "rank 1 on ", HOLD_S)],
    ids=["rank 1", "rank 0", "two ranks", "others never pause", "others pause for long", "no stack is to be had"])
@long_only
def test_a_silent_rank_beside_ranks_that_poll_is_named_and_ended_once_it_has_lasted(  # type: ignore[no-untyped-def]
        train, flags: str, hang_at: int, tasks: int, named: str, after_s: float) -> None:
    drill = train(f"--steps {hang_at + 5} --step-time 1 --hang-at {hang_at} {flags}", tasks=tasks)
    drill.wait_step(hang_at - 1, timeout_s=200)
    step_t = _last_step_t(drill, hang_at - 1)
    noticed = drill.wait_event("hang_suspected", timeout_s=120)
    found = drill.wait_event("verdict", timeout_s=900)
    why = drill.as_user("why", str(drill.run_dir), "--attempt", "1").stdout
    print(f"{flags}: noticed after {noticed.t - step_t:.0f} s, ended after {found.t - step_t:.0f} s")
    print(drill.story(), why, sep="\n")
    assert noticed.t - step_t <= 60, drill.story()
    assert found.data["category"] == "hang" and found.data["summary"].startswith(named), drill.story()
    assert after_s <= found.t - step_t <= after_s + SLACK_S, drill.story()
    assert named in why, why
    state = drill.wait_end(300)
    assert state.ended and state.ended.how == "completed", drill.story()
