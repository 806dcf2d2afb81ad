"""safelaunch.callbacks without a framework, and with Accelerate: all ranks end at one step, and nothing hangs.

tests/frameworks has the same for Transformers and Lightning, which `make test-frameworks` installs.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch import callbacks
from safelaunch.callbacks import MOST_STEPS, AllRanks, EndListener
from tests.localruns import SubmitLocal
from tests.torchbin import Ranks, needs_accelerate

ROOT = Path(__file__).parent.parent
STEP_S = st.floats(0.0, 100.0)


class World:
    """Ranks whose sums meet in lockstep: each has its own clock, and all must ask at the same step."""

    def __init__(self, ranks: int) -> None:
        self.ranks = [AllRanks(self._offer(rank), 0.0) for rank in range(ranks)]
        self.offers: dict[int, list[float]] = {}

    def _offer(self, rank: int) -> Callable[[list[float]], list[float]]:
        def offer(values: list[float]) -> list[float]:
            self.offers[rank] = values
            raise InterruptedError   # this rank waits; `step` calls it once more with what all have offered
        return offer

    def step(self, asked: list[bool], now_s: list[float]) -> list[bool]:
        self.offers, waiting, answers = {}, [], []
        for rank, (is_asked, at_s) in enumerate(zip(asked, now_s, strict=True)):
            one = self.ranks[rank]
            left = one._left
            try:
                answers.append(one.should_end(is_asked, at_s))
            except InterruptedError:
                one._left = left
                waiting.append(rank)
        assert len(waiting) in (0, len(self.ranks)), "a rank would wait for ever in the collective"
        sums = [sum(column) for column in zip(*self.offers.values(), strict=True)]
        for rank in waiting:
            self.ranks[rank]._sum = lambda values: sums
            answers.append(self.ranks[rank].should_end(asked[rank], now_s[rank]))
            self.ranks[rank]._sum = self._offer(rank)
        return answers


@given(st.lists(st.lists(STEP_S, min_size=3, max_size=3), min_size=1, max_size=400), st.integers(0, 400),
       st.integers(0, 2))
def test_all_ranks_end_at_one_step_whoever_was_asked_and_whatever_their_clocks(
    steps: list[list[float]], asked_at: int, who: int
) -> None:
    world, now_s = World(3), [0.0, 0.0, 0.0]
    for number, took in enumerate(steps):
        now_s = [before + one for before, one in zip(now_s, took, strict=True)]
        answers = world.step([number >= asked_at and rank == who for rank in range(3)], now_s)
        assert len(set(answers)) == 1
        assert not answers[0] or number >= asked_at
        if answers[0]:
            return
    assert len(steps) < asked_at + MOST_STEPS


@pytest.mark.parametrize(("step_s", "most"), [(10.0, 1), (1.0, 3), (0.1, 30), (0.0001, MOST_STEPS)])
def test_ranks_ask_each_other_about_every_three_seconds(step_s: float, most: int) -> None:
    asked: list[int] = []

    def sum_up(values: list[float]) -> list[float]:
        asked.append(number)
        return values

    ranks = AllRanks(sum_up, 0.0)
    for number in range(1, 1001):
        ranks.should_end(False, number * step_s)
    gaps = [after - before for before, after in pairwise(asked)]
    assert gaps[-1] == max(gaps) and most - 1 <= gaps[-1] <= most


@pytest.fixture
def in_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A run's environment; the kill switch's file."""
    for name, value in {"ATTEMPT": "1", "KILL_FILE": str(tmp_path / "kill"), "KILL_SIGNAL": "SIGUSR1"}.items():
        monkeypatch.setenv(f"SAFELAUNCH_{name}", value)
    monkeypatch.setenv("RANK", "3")
    before = signal.getsignal(signal.SIGUSR1)
    yield tmp_path / "kill"
    signal.signal(signal.SIGUSR1, before)


def test_the_runs_own_signal_is_heard_and_the_trainings_own_handler_too(in_run: Path) -> None:
    heard: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    request = EndListener()
    assert not request.is_asked

    signal.raise_signal(signal.SIGUSR1)

    assert request.is_asked and heard == [signal.SIGUSR1]


def test_the_file_is_seen_by_rank_0_alone(in_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "LOOK_S", 0.001)
    monkeypatch.setenv("RANK", "0")
    first = EndListener()
    monkeypatch.setenv("RANK", "1")
    second = EndListener()

    in_run.touch()

    for thread in threading.enumerate():
        if thread.name == "safelaunch":
            thread.join(60)
    assert (first.is_asked, second.is_asked) == (True, False)


def test_nothing_is_listened_to_outside_a_run(in_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAFELAUNCH_ATTEMPT")
    in_run.touch()
    before = signal.getsignal(signal.SIGUSR1)
    steps = callbacks.RunSteps(lambda values: pytest.fail("no collective outside a run"))
    assert signal.getsignal(signal.SIGUSR1) is before
    assert not any(steps.done(step) for step in range(200))


STEPS = """
import time
from safelaunch.callbacks import RunSteps
steps, step = RunSteps(lambda values: values), 1
while not steps.done(step, 1 / step):
    time.sleep(0.01)
    step += 1
open(f"ckpt/step_{step}.json", "w").write("{}")
"""


def test_stop_with_checkpoint_reaches_a_training_by_the_signal_that_its_run_names(
    submit_local: SubmitLocal, tmp_path: Path
) -> None:
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "steps.py").write_text(STEPS)
    run = submit_local("", f"command={sys.executable} -u steps.py", "kill_switch.signal=SIGUSR1", "resume.args=",
                       "resume.by=training", "resume.format=pattern", "resume.pattern=step_{step}.json")
    run.wait_for(lambda: "safelaunch: step" in run.log(1), 60, "it told no step")

    run.type("stop", "--checkpoint", str(run.run_dir))

    ended = run.wait_end()
    assert (ended.how, ended.exit_code) == ("stopped", 12), run.story()
    assert len(list((tmp_path / "ckpt").iterdir())) == 1, run.story()
    assert run.events("attempt_ended")[0].data["exit_code"] == 0


SAVES = """
import pathlib, time
from safelaunch.callbacks import RunSteps
steps, step = RunSteps(lambda values: values), 1
while not steps.done(step, 1 / step):
    if steps.should_save:
        pathlib.Path(f"ckpt/step_{step}.json").write_text("{}")
    time.sleep(0.01)
    step += 1
"""
DEAF = """
import itertools, signal, time
signal.signal(signal.SIGUSR2, lambda *_: exit(0))
for step in itertools.count(1):
    print(f"step {step} loss 1.0", flush=True)
    time.sleep(0.05)
"""
SIGNALLED = """
import itertools, pathlib, signal, time
wants = []
signal.signal(signal.SIGUSR1, lambda *_: wants.append(1))
for step in itertools.count(1):
    print(f"step {step} loss 1.0", flush=True)
    if wants:
        pathlib.Path(f"ckpt/step_{step}.json").write_text("{}")
        wants.clear()
    time.sleep(0.05)
"""


@pytest.mark.parametrize(("text", "outcome", "code"), [
    (SAVES, "saved", 0), (SIGNALLED, "saved", 0), (DEAF, "unheard", 124),
], ids=["by the callback", "by a signal", "nobody listens"])
def test_save_returns_with_the_new_checkpoint_and_the_training_goes_on(
    text: str, outcome: str, code: int, submit_local: SubmitLocal, tmp_path: Path
) -> None:
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "steps.py").write_text(text)
    run = submit_local("", f"command={sys.executable} -u steps.py", "kill_switch.save_signal=SIGUSR1", "resume.args=",
                       "resume.by=training", "resume.format=pattern", "resume.pattern=step_{step}.json")
    run.wait_for(lambda: "step 1 " in run.log(1), 60, "it told no step")

    done = run.type("save", "--json", "--within", "30s" if code == 0 else "5s", str(run.run_dir))

    told = json.loads(done.stdout)
    assert (told["outcome"], done.returncode) == (outcome, code), done.stdout + done.stderr
    assert [path.name for path in (tmp_path / "ckpt").iterdir()] == (
        [f"step_{told['step']}.json"] if code == 0 else [])
    assert not (run.run_dir / "control" / "save").exists()
    assert run.state().attempts[-1].ended is None and len(run.state().attempts) == 1, run.story()
    run.type("stop", "--now", str(run.run_dir))
    run.wait_end()


LOOP = """
import os, signal, sys
from accelerate import Accelerator
from safelaunch_callbacks.accelerate import AccelerateLoop
accelerator = Accelerator(cpu=True)
loop = AccelerateLoop(accelerator)
for step in range(1, 100):
    if step == int(sys.argv[1]) and accelerator.process_index == 1:
        os.kill(os.getpid(), signal.SIGUSR2)   # rank 0 hears nothing of it
    if loop.step_done(step, 0.5):
        break
print(f"ends after step {step}", sorted(name for name in sys.modules if name.startswith("safelaunch")), flush=True)
accelerator.end_training()
"""
FILES = "['safelaunch_callbacks', 'safelaunch_callbacks.accelerate', 'safelaunch_progress']"


def train(ranks: Ranks, folder: Path, count: int, asked_at: int, **env: str) -> str:
    """What Accelerate's ranks print, with the two copies beside the training."""
    for source in ("safelaunch_progress.py", "safelaunch_callbacks"):
        (folder / source).symlink_to(ROOT / "progress" / source)
    (folder / "train.py").write_text(LOOP)
    said = ranks.run(folder, "train.py", asked_at, count=count, package="accelerate", **env)
    assert said.codes == [0] * count, said.err
    return said.out


@needs_accelerate
@pytest.mark.torch
def test_ranks_of_accelerate_end_at_one_step_though_one_alone_was_asked(tmp_path: Path, torch_ranks: Ranks) -> None:
    said = train(torch_ranks, tmp_path, 2, 20, SAFELAUNCH_ATTEMPT="1", SAFELAUNCH_KILL_FILE=str(tmp_path / "kill"))
    ends = [line for line in said.splitlines() if line.startswith("ends after step ")]
    assert len(ends) == 2 and len(set(ends)) == 1 and ends[0].endswith(FILES), said
    assert 20 <= int(ends[0].split()[3]) < 99 and "safelaunch: step 1 loss 0.5" in said


@needs_accelerate
@pytest.mark.torch
def test_accelerate_outside_a_run_sees_nothing_of_it(tmp_path: Path, torch_ranks: Ranks) -> None:
    assert train(torch_ranks, tmp_path, 1, 0) == f"ends after step 99 {FILES}\n"
