"""A user's own script that asks Slurm about itself, or submits itself or another job, on a real Slurm."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests.runs import ALICE, Drill, Installation
from tests.sandboxes import make_workdir

Submit = Callable[..., list[Drill]]
SELF = """\
N=${1:-1}
echo "link $N: $SLURM_JOB_NAME ${SLURM_RESTART_COUNT-unset} ${X-} $(pwd)" >>links
case $N in
1) python3 -c 'import subprocess; print(subprocess.run(["sbatch", "--parsable", "job.slurm", "2"], check=True))' ;;
2) NEXT=$(sbatch --parsable -d afterok:$SLURM_JOB_ID --export=ALL,X=5 "$0" 3)
   CHILD="env | grep -c SAFELAUNCH; srun sleep 6; echo child has ended"
   [[ $SLURM_RESTART_COUNT ]] || sbatch -J child -w $SLURMD_NODENAME -o child.out --wrap "$CHILD"
   [[ $SLURM_RESTART_COUNT ]] || exit 7   # as the link 2 that it was
   scancel $NEXT; sbatch "$(scontrol show job $SLURM_JOB_ID | sed -n 's/^ *Command=\\([^ ]*\\).*/\\1/p')" 3 ;;
3) [[ $SLURM_RESTART_COUNT ]] || { scontrol requeue $SLURM_JOB_ID; sleep 60; }
   sbatch --dependency=afternotok:$SLURM_JOB_ID "$0" 4 ;;
esac
"""
ASKS = """\
set -eu
srun -l echo training done
grep -q "training done" "$(scontrol show job $SLURM_JOB_ID | sed -n 's/^ *StdOut=//p')"
scontrol show job $SLURM_JOB_ID | sed -n 's/^JobId=[0-9]* //p; s/^ *\\(Command\\|StdOut\\|StdErr\\)=/\\1=/p'
squeue -h -n "$SLURM_JOB_NAME" -o "<%.8j> <%j> <%o>"
echo "${SLURM_OPEN_MODE-none} ${SLURM_JOB_DEPENDENCY-none}"
mkdir results && mv out/*.log results/
"""


@pytest.fixture
def sent(installation: Installation, sandbox: Sandbox) -> Submit:
    """`sent(body, directives)` submits a script as sl-alice: its runs."""

    def go(body: str, directives: str) -> list[Drill]:
        work = make_workdir(sandbox)
        own = {**installation.env, "XDG_STATE_HOME": f"{work}/.state"}
        (work / "job.slurm").write_text(f"#!/bin/bash\n#SBATCH -N 1 -t 30 {directives}\n{body}")
        done = sandbox.run([*installation.argv, "submit", "job.slurm", "--json", "restart.backoff=0s"], cwd=work,
                           user=ALICE, env=own, timeout_s=180)
        assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"
        told = json.loads(done.stdout)
        return [Drill(sandbox, installation, work, Path(one["run_dir"]), one["job"], [done.stderr], own)
                for one in told.get("runs", [told])]

    return go


def test_a_chain_of_links_is_one_run_and_another_job_has_its_own_fate(sent: Submit) -> None:
    (drill,) = sent(SELF, "-J 'my chain'")
    state = drill.wait_end(180)

    said = drill.story() + "".join(drill.log(number) for number in range(1, len(state.attempts) + 1))
    assert state.ended is not None and state.ended.how == "completed", said
    assert [attempt.ended for attempt in state.attempts] == ["linked", "failed", "linked", "linked", "completed"], said
    assert (drill.folder / "links").read_text().splitlines() == [
        f"link {number}: my chain {restarts} {x} {drill.folder}" for number, restarts, x in (
            (1, "unset", ""), (2, "unset", ""), (2, 1, ""), (3, "unset", ""), (3, 1, ""))], said
    drill.wait_for(lambda: "child has ended" in (drill.folder / "child.out").read_text(), 60, "its other job was ended")
    assert (drill.folder / "child.out").read_text().split("\n")[0] == "0"


def test_a_script_finds_its_own_name_log_and_file(sent: Submit) -> None:
    (drill,) = sent(ASKS, "-J 'näme x' -o out/%x-%j.log")
    state = drill.wait_end(120)

    assert state.ended is not None and state.ended.how == "completed", drill.story() + drill.log(1)
    output = f"{drill.folder}/out/näme x-{drill.job}.log"
    assert drill.log(1).splitlines()[-7:] == [
        "0: training done", "JobName=näme x", f"Command={drill.folder}/job.slurm", f"StdErr={output}",
        f"StdOut={output}", f"<  näme x> <näme x> <{drill.folder}/job.slurm>", "none none"], drill.log(1)
    assert (drill.folder / "results" / f"näme x-{drill.job}.log").read_text() == drill.log(1)


def test_tasks_of_an_array_know_their_array(sent: Submit) -> None:
    drills = sent('set -u; echo "$SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_STEP" >$SLURM_ARRAY_TASK_ID.txt\n', "-a 1-3:2")
    states = [drill.wait_end(120) for drill in drills]

    work = drills[0].folder
    assert all(state.ended is not None and state.ended.how == "completed" for state in states), drills[0].story()
    (told,) = {path.read_text().strip() for path in work.glob("*.txt")}
    array, step = told.split()
    assert step == "2" and array.isdigit()
    assert sorted(path.name for path in work.glob("slurm-*.out")) == [f"slurm-{array}_{task}.out" for task in (1, 3)]
