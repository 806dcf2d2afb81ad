"""The table of what differs from sbatch (docs/scripts.md): each row that check is to speak of has a script."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from safelaunch.config.resolve import ConfigLayer, resolve
from safelaunch.errors import ConfigError

PAGE = Path(__file__).parents[3] / "docs" / "scripts.md"


class Sample(NamedTuple):
    """How a row of the table begins, a script of that shape, and what is said of it."""

    row: str
    text: str
    said: str
    line: int = 0              # 0: of no line
    overrides: tuple[str, ...] = ()


SAMPLES = (
    Sample("any failure", "srun a", "must load its newest checkpoint itself"),
    Sample("a date,", "OUT=out/$(date +%F)\nsrun python a.py --dir $OUT", "the date is in the name", 3),
    Sample("`$SLURM_JOB_ID`", "OUT=out/$SLURM_JOB_ID\nsrun python a.py --dir $OUT", "$SLURM_JOB_ID is in the name", 3),
    Sample("`srun … > train.log`", "srun python a.py > train.log", "leave the redirection out", 3),
    Sample("`srun … > train.log`", "{ srun python a.py; } > train.log", "leave the redirection out", 3),
    Sample("`srun … > train.log`", "exec > train.log 2>&1\nsrun python a.py", "exec > >(tee FILE)", 3),
    Sample("`srun … > train.log`", "srun -e x.log python a.py", "leave --output out", 3),
    Sample("`srun … > train.log`", "srun --output=x.log python a.py", "leave --output out", 3),
    Sample("ranks by `ssh`", "pdsh -w $HOSTS python a.py", "outside of Slurm's steps", 3),
    Sample("ranks by `ssh`", "for h in $HOSTS; do ssh $h python3 a.py & done; wait", "outside of Slurm's steps", 3),
    Sample("ranks by `ssh`", "parallel --sshlogin $HOSTS python a.py", "outside of Slurm's steps", 3),
    Sample("ranks by `ssh`", "deepspeed --hostfile=hosts a.py", "by ssh", 3),
    Sample("ranks by `mpirun`", "mpirun -np 4 python a.py", "srun --mpi=pmix", 3),
    Sample("ranks by `mpirun`", "ibrun python a.py", "srun --mpi=pmix", 3),
    Sample("arguments", "while getopts a: o; do :; done\nsrun python a.py", "reads getopts", 3),
    Sample("arguments", "srun python a.py ${1:?need a config}", "reads ${1:?", 3),
    Sample("`srun torchrun …`", "#SBATCH --ntasks-per-node=4\nsrun torchrun a.py", "each of 4 tasks of a node", 4),
    Sample("`env -i`", "env -i python a.py", "leave -i out", 3),
    Sample("`module load slurm`", "module load slurm\nsrun a", "leave it out", 3),
    Sample("`module load slurm`", "source env.sh\nexec srun python a.py", "write srun alone", 4),
    Sample("`srun … \\| tee log`", "srun python a.py | tee log", "set -o pipefail", 3),
    Sample("`srun … \\| tee log`", "srun python a.py\necho done", "|| exit $?", 3),
    Sample("`--gpus=4`", "#SBATCH --gpus=4\nsrun a", "becomes --gpus-per-node=2", 3),
    Sample("`--gpus=5`", "#SBATCH --gpus=5\nsrun a", "no even number on each", 3, ("spare_nodes=1",)),
    Sample("`--gpus=5`", "#SBATCH --gpus=5\nsrun a", "Slurm spreads them as it likes", 3),
    Sample("`--gpus=8` alone", "#SBATCH --gpus=8\nsrun a", "one node is asked for", 3, ("slurm.nodes=null",)),
    Sample("`-n 3` on 2 nodes", "#SBATCH -n 3\nsrun a", "each of 3 nodes gets room for 2", 3, ("spare_nodes=1",)),
    Sample("`-N 4 -n 2`", "#SBATCH -N 4 -n 2\nsrun a", "as under sbatch", 3),
    Sample("`--array=1-3`", "#SBATCH --array=1-3\nsrun a $SLURM_ARRAY_TASK_ID", "a sweep of 3 runs", 3),
    Sample("a secret", "export HF_TOKEN=hf_abcdefghijkl\nsrun a", "a secret in the script", 3),
    Sample("`#SBATCH hetjob`", "#SBATCH hetjob\nsrun a", "heterogeneous", 3),
    Sample("`srun --multi-prog`", "srun --multi-prog a", "a srun of its own", 3),
    Sample("`/usr/bin/srun`", "/usr/bin/srun a", "write srun alone", 3),
)


def rows() -> list[tuple[str, bool]]:
    """The shape of each row, and whether it claims that check speaks of it."""
    section = PAGE.read_text().partition("## What differs from sbatch")[2].partition("\n## ")[0]
    lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in section.split("\n") if line.startswith("| ")]
    return [(cells[0].strip(), cells[3].strip() == "yes") for cells in lines[1:]]


def test_each_row_that_check_speaks_of_has_a_script_and_no_script_is_without_a_row() -> None:
    shapes = [shape for shape, is_said in rows() if is_said]
    assert [shape for shape in shapes if not any(shape.startswith(one.row) for one in SAMPLES)] == []
    assert [one.row for one in SAMPLES if not any(shape.startswith(one.row) for shape in shapes)] == []


def test_check_says_of_each_script_what_the_table_claims() -> None:
    silent = []
    for one in SAMPLES:
        text = f"#!/bin/bash\n#SBATCH -N 2\n{one.text}\n"
        try:
            found = list(resolve([ConfigLayer("file", "job.slurm", text)], ["cluster=slurm", *one.overrides],
                                 {"HOME": "/h"}, (), "/work").notes)
        except ConfigError as error:
            found = str(error).splitlines()
        place = f"job.slurm:{one.line}:" if one.line else ""
        if not any(note.startswith(place) and one.said in note for note in found):
            silent.append((one.row, found))
    assert silent == []
