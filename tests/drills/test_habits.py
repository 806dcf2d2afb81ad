"""People's habits under the faults of the ladder: scripts that submit, clean, copy, count and read themselves, and a
node that dies meanwhile. Each ends as its own logic wants it: every step is right, one writer, nothing is left.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import (
    AHEAD,
    FLAGS,
    IS_LONG,
    LEAVE_S,
    check_completes,
    check_one_writer,
    crash,
    long_only,
    tell_last,
    wait_standby,
)
from tests.drills.test_script import Script, script
from tests.runs import Drill, plan_of

__all__ = ["script"]   # a fixture

LOAD = "${SAFELAUNCH_RESUME_PATH:+--load $SAFELAUNCH_RESUME_PATH}"


def train(flags: str = "", options: str = "") -> str:
    """A rank that dies ends the others: they wait for each other in a loop of their own, which no library ends."""
    return f'srun -K1 {options} bash -c "RANK=\\$SLURM_PROCID TRAINER {FLAGS} {flags} --ckpt ckpt {LOAD}"'


TRAIN = train()


class Habit(NamedTuple):
    """A script, what is given behind its file, and what must be so at its end beside every step."""

    body: str
    proof: Callable[[Drill], object]
    options: str = ""
    tasks: int = 1   # a node
    first: int = 1   # the attempt that trains
    words: tuple[str, ...] = ()   # behind the script's file
    is_of_limit: bool = False   # the proof is of a time limit only
    meanwhile: Callable[[Drill], object] = id   # what is done right behind the fault


def _file(name: str, text: str | None = None) -> Callable[[Drill], object]:
    def check(drill: Drill) -> None:
        path = drill.folder / name
        assert path.exists() and (text is None or text in path.read_text()), drill.story()
    return check


def _no_other_job(drill: Drill) -> None:
    """The chain's next job was never one beside the run's own."""
    assert not (drill.folder / "twice").exists(), drill.story()
    name = Path(drill.folder).name
    assert name not in drill.sandbox.slurm(["squeue", "-h", "-o", "%j"]), drill.story()


HABITS = {
    "one rank exports when the others are done": Habit(
        f'{TRAIN} || exit $?\nsrun bash -c "((SLURM_PROCID)) || {{ sleep 3; touch exported; }}"', _file("exported")),
    "the next job is queued first": Habit(
        'THIS=$SLURM_SUBMIT_DIR/job.slurm\n[ -e finished ] || sbatch --dependency=afterany:$SLURM_JOB_ID "$THIS"\n'
        f'[ ! -e running ] || echo >twice\ntouch running\ntrap "rm -f running" EXIT\n{TRAIN} && touch finished',
        _no_other_job),
    "a first start cleans up": Habit(
        'if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then echo going on; else rm -rf ckpt starts; fi\n'
        f'echo start >>starts\n{TRAIN}', lambda drill: _file("starts")(drill)),
    "it keeps its own log": Habit(
        f'set -e\n{TRAIN}\nmkdir -p results\ncp $SLURM_JOB_ID.log results/\ngrep -q "step" results/$SLURM_JOB_ID.log',
        lambda drill: list((drill.folder / "results").glob("*.log")) or pytest.fail(drill.story())),
    "three tasks on two nodes": Habit(
        f'echo "tasks $SLURM_NTASKS"\n{TRAIN}', lambda drill: _says(drill, "tasks 3"), "-n 3", tasks=2),
    "the training is done, and what follows fails once": Habit(
        f'{TRAIN} || exit $?\n[ -e late ] || {{ touch late; exit 9; }}', _file("late")),
    "it looks for its data first": Habit(
        f'[ -e data ] || {{ touch data; exit 3; }}\n{TRAIN}', lambda drill: _blames_no_node_at_first(drill), first=2),
    "options in other words, and arguments": Habit(
        f'#PBS -l walltime=0:29:00\n[ "$*" = "cfg.yaml a b=c" ] || exit 7\n'
        f'squeue -h -j $SLURM_JOB_ID -o "limit %l"\n{TRAIN}', lambda drill: _says(drill, "limit 29:00"),
        '--comment="a b" --tasks-per-node=1 --gres-fl=disable-binding', words=("cfg.yaml", "a b=c")),
    "its own shell is warned": Habit(
        f'trap "touch warned" USR1\n{TRAIN} & pid=$!\nwhile kill -0 $pid 2>/dev/null; do wait $pid; code=$?; done\n'
        'exit $code', _file("warned"), "--signal=B:USR1@60", is_of_limit=True),
    "another job on its nodes": Habit(
        f'[ -e child ] || {{ touch child; sbatch -N1 -w n0 -o child.out --wrap "srun sleep 5; echo child done"; }}\n'
        f'{TRAIN}', lambda drill: drill.wait_for(
            lambda: "child done" in (drill.folder / "child.out").read_text(), 30, "the child was killed")),
    "a checkpoint is two files, and the best one lies beside": Habit(
        train("--pair"), lambda drill: _goes_on_from(drill, "model_")),
    "its ranks end with 0 when they are told to": Habit(
        f'{train("--handle-term")} | tee train.log\necho all is well', _file("train.log")),
    "somebody else holds a GPU": Habit(
        'cat >held.sh <<\'END\'\n[ "$SLURMD_NODENAME" != n1 ] || [ -e held ] || { touch held; sleep 1; echo "'
        'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 3 has a total capacity of 79.10 '
        'GiB of which 11.38 MiB is free. Process 2505781 has 77.98 GiB memory in use. Including non-PyTorch memory, '
        'this process has 1.08 GiB memory in use."; exit 1; }\nEND\n'
        f'srun -K1 bash held.sh || exit $?\n{TRAIN}', lambda drill: _suspects(drill, "n1"), first=2),
    "another run wants its checkpoints": Habit(
        TRAIN, lambda drill: None, meanwhile=lambda drill: _keeps_its_folder(drill)),
    "its folder has the array's name": Habit(
        'set -u\necho $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID >>ids\nmkdir -p out/$SLURM_ARRAY_JOB_ID\n'
        f'ln -sfn out/$SLURM_ARRAY_JOB_ID ckpt\n{TRAIN}', lambda drill: _has_one_line(drill, "ids"), "--array=7"),
    "its steps are coloured": Habit(
        f"set -o pipefail\n{TRAIN} | sed -u 's/^step/\\x1b[1;32mstep/; s/$/\\x1b[0m/'",
        lambda drill: _knows_steps(drill)),
    "its training waits for another step": Habit(
        f'srun sleep 4 & sleep 0.5\n{train(options="--exact")}', lambda drill: _blames_no_waiting(drill)),
    "a script of 400 kB": Habit(
        f"cat >data.txt <<'END'\n{('x' * 79 + chr(10)) * 5_000}END\n{TRAIN}", _file("data.txt")),
}


def _says(drill: Drill, words: str) -> None:
    assert words in drill.log(len(drill.state().attempts)), drill.story()


def _blames_no_node_at_first(drill: Drill) -> None:
    """A script's own exit code before its sruns is no node's."""
    second = drill.wait_event("attempt_started", 2)
    blamed = [one for one in drill.events() if one.t < second.t and one.data.get("suspects")]
    assert blamed == [], drill.story()


def _goes_on_from(drill: Drill, name: str) -> None:
    paths = [attempt.resume_path or "" for attempt in drill.state().attempts[1:]]
    assert paths and all(Path(path).name.startswith(name) for path in paths), paths


def _suspects(drill: Drill, node: str) -> None:
    """The verdict on the first attempt names that node, and no later attempt of its job runs there."""
    verdict = drill.events("verdict")[0].data
    assert verdict["suspects"] == [node], drill.story()
    first, second = drill.state().attempts[:2]
    assert first.job != second.job or node not in second.nodes, drill.story()


def _keeps_its_folder(drill: Drill) -> None:
    """Between two attempts and two jobs, too."""
    for _ in range(2):
        done = drill.as_user("submit", "job.slurm", "name=second", "resume.dir=ckpt")
        assert done.returncode and "is where the run" in done.stderr, done.stdout + done.stderr + drill.story()


def _has_one_line(drill: Drill, name: str) -> None:
    lines = (drill.folder / name).read_text().splitlines()
    assert len(lines) == len(drill.state().attempts) and len(set(lines)) == 1, lines


def _knows_steps(drill: Drill) -> None:
    for attempt in drill.state().attempts:
        assert (attempt.step or 0) >= max(drill.steps(attempt.number)) - 20, drill.story()


def _blames_no_waiting(drill: Drill) -> None:
    assert not [one for one in drill.events("verdict") if "step" in one.data.get("category", "")], drill.story()


def kill_rank(drill: Drill, sandbox: Sandbox) -> None:
    drill.kill(drill.ranks()[-1])


def kill_worker(drill: Drill, sandbox: Sandbox) -> None:
    crash(sandbox, drill.state().attempts[-1].nodes[1])


def silence_worker(drill: Drill, sandbox: Sandbox) -> None:
    crash(sandbox, drill.state().attempts[-1].nodes[1], silent=True)


def kill_batch_host(drill: Drill, sandbox: Sandbox) -> None:
    wait_standby(drill)
    crash(sandbox, drill.state().attempts[-1].nodes[0])


def kill_supervisor(drill: Drill, sandbox: Sandbox) -> None:
    """The training goes on, and a rank dies under the next supervisor."""
    before = drill.leader()
    drill.kill(before)
    drill.wait_for(lambda: drill.leader() not in (None, before), 30, "no supervisor is back")
    kill_rank(drill, sandbox)


def come_to_the_limit(drill: Drill, sandbox: Sandbox) -> None:
    drill.kill(drill.leader(), signal.SIGUSR2)   # as Slurm's warning does


FAULTS = (kill_rank, kill_worker, silence_worker, kill_batch_host, kill_supervisor, come_to_the_limit)
SHORT = {("a first start cleans up", kill_worker), ("the next job is queued first", come_to_the_limit)}


@pytest.mark.parametrize(("name", "fault"), [
    pytest.param(name, fault, id=f"{name}-{fault.__name__}",
                 marks=() if IS_LONG or (name, fault) in SHORT else pytest.mark.skip("run with SAFELAUNCH_LONG=1"))
    for name in HABITS for fault in FAULTS])
def test_a_habit_survives_a_fault(
    name: str, fault: Callable[[Drill, Sandbox], None], script: Script, sandbox: Sandbox
) -> None:
    habit = HABITS[name]
    options = f"#SBATCH {habit.options}\n" if habit.options else ""
    drill = script(f"{options}{habit.body}\n", 2, "spare_nodes=1", "resume.dir=ckpt", "resume.format=torch",
                   "restart.backoff=0s", "kill_switch.grace=5s", *habit.words, tasks=habit.tasks, shell="/bin/bash")
    drill.wait_event("submitted", 2)
    drill.wait_step(25, habit.first)

    fault(drill, sandbox)
    habit.meanwhile(drill)

    second = drill.wait_event("attempt_started", habit.first + 1, timeout_s=120)
    assert second.data["resume_step"] >= 20, drill.story()
    drill.wait_step(second.data["resume_step"] + 5, habit.first + 1)
    check_completes(drill, 90, has_lost_log_end=True)
    if fault is come_to_the_limit or not habit.is_of_limit:
        habit.proof(drill)


# Not the batch host: a guard takes a record that is not there for one that it cannot see, and ends no job.
@long_only
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault is not kill_batch_host])
def test_a_run_whose_folder_is_gone_leaves_nothing_after_a_fault(
    fault: Callable[[Drill, Sandbox], None], script: Script, sandbox: Sandbox
) -> None:
    drill = script(f"{TRAIN}\n", 2, "spare_nodes=1", "resume.dir=ckpt", "restart.backoff=0s", shell="/bin/bash")
    drill.wait_event("submitted", 2)
    drill.wait_step(25)
    name, runs = plan_of(drill.run_dir).job_name, drill.run_dir.parent
    drill.leader = replace(drill).leader   # type: ignore[method-assign]   # by the old name of its folder
    drill.run_dir = runs.rename(runs.with_name("runs.old")) / drill.run_dir.name

    fault(drill, sandbox)

    tell_last(drill.folder, max(drill.steps()) + AHEAD)
    asked = ["squeue", "-h", "--name", name, "-o", "%i"]
    drill.wait_for(lambda: not sandbox.slurm(asked).strip(), 1_000, "a job is left")
    for machine in reversed(sandbox.machines):
        sandbox.heal(machine)
    drill.wait_for(lambda: not drill.ranks(), LEAVE_S, "ranks are left")
    check_one_writer(drill)
    assert not runs.exists(), "nothing is made anew"
