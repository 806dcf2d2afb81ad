"""The next attempt by a person's wish, on the local cluster: `safelaunch restart`, and `resume.step`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.localruns import SubmitLocal


def test_a_running_attempt_saves_and_the_next_one_goes_on_from_there_at_no_cost(submit_local: SubmitLocal) -> None:
    run = submit_local("--steps 100000 --step-time 0.02 --save-every 1000000 --handle-usr2")
    run.wait_step(3)

    done = run.type("restart", "--json", str(run.run_dir))

    told = json.loads(done.stdout)
    assert (done.returncode, told["seen"], told["attempt"]) == (0, True, 1), done.stderr
    run.wait_for(lambda: len(run.state().attempts) == 2, 60, "no second attempt")
    state = run.state()
    assert (state.attempts[0].ended, state.restarts, state.restart) == ("interrupted", 0, None), run.story()
    assert (state.attempts[1].resume_step or 0) >= 3, run.story()
    run.type("stop", "--now", str(run.run_dir))
    run.wait_end()
    assert len(run.state().attempts) == 2, run.story()   # one touch, one attempt


def test_resume_step_holds_for_each_attempt_until_the_training_is_behind_it_again(
    submit_local: SubmitLocal, tmp_path: Path
) -> None:
    submit_local("--steps 40 --step-time 0.01 --save-every 10").wait_end()
    kept = {path.name: path.stat().st_mtime for path in (tmp_path / "ckpt").iterdir()}

    run = submit_local("--steps 40 --step-time 0.01 --save-every 10 --die-at 15 --die-rank 0", "name=again",
                       "resume.step=10", "resume.dir=./ckpt")

    run.wait_for(lambda: len(run.state().attempts) == 2, 60, "no second attempt")
    assert [one.resume_step for one in run.state().attempts] == [10, 10], run.story()
    assert set(kept) <= {path.name for path in (tmp_path / "ckpt").iterdir()}
    assert run.wait_end().how == "completed", run.story()
    assert set(run.losses()) >= set(range(11, 41))


def test_a_step_without_a_complete_checkpoint_is_refused_with_the_list(
    submit_local: SubmitLocal, tmp_path: Path
) -> None:
    run = submit_local("--steps 20 --step-time 0.01 --save-every 10")
    run.wait_end()

    done = run.type("submit", "train.yaml", "name=again", "resume.step=15")

    assert done.returncode == 2 and "no complete checkpoint of step 15" in done.stderr, done.stderr
    assert "complete are: 10, 20" in done.stderr and not (tmp_path / "runs" / "again").exists()


def test_a_pause_between_attempts_ends(submit_local: SubmitLocal) -> None:
    run = submit_local("", "command=exit 7", "restart.backoff=1h", "resume.by=training", "resume.args=",
                       "restart.policy={unknown: wait}", "restart.max_without_progress=9")
    run.wait_for(lambda: run.state().pause_until is not None, 60, "no pause")

    done = run.type("restart", str(run.run_dir))

    assert done.returncode == 0 and "starts without a pause" in done.stderr, done.stderr
    count = len(run.state().attempts)
    run.wait_for(lambda: len(run.state().attempts) > 1, 60, f"no attempt after {count}")
    run.type("stop", "--now", str(run.run_dir))
    run.wait_end()
