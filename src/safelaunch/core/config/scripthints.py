"""What an sbatch script holds that works otherwise, or worse, under safelaunch: each with its line, and what to do."""

from __future__ import annotations

import re
from typing import NamedTuple

from safelaunch.core.config.shelllines import Statement


class Hint(NamedTuple):
    """A pattern of one statement, quotes of the single kind taken out, and what is said of it."""

    pattern: str
    text: str


_NEW = ("a folder or a name made of it is a new one after a restart, and no checkpoint is found there; "
        "$SAFELAUNCH_RUN_ID stays the same")
HINTS: tuple[Hint, ...] = (
    Hint(r"\$(?:[1-9@*]|\{[1-9@*])",
         "an argument of the script: safelaunch gives it none; unless this stands in a function, write the value here"),
    Hint(r"\A(?:export )?(?!\w{0,60}(?:PORT|RDZV|rdzv|JOB))\w{1,60}=.{0,400}\$\{?SLURM_JOB_?ID\b",
         f"SLURM_JOB_ID is another one in each job of the run: {_NEW}"),
    Hint(r"\A(?:export )?\w{1,60}=.{0,400}(?:\$\(|`) ?date\b", f"the date is another one in each attempt: {_NEW}"),
    Hint(r"\Atrap ", "before the time limit safelaunch sends kill_switch.signal to the training's processes that "
                        "handle it; traps of the script's own shell are not called"),
    Hint(r"\Adeepspeed .{0,400}--hostfile|\A(?:pdsh|ssh|mpirun) ",
         "ranks that ssh starts run outside of Slurm's steps: no node guard ends them, and `stacks` does not see them. "
         "Instead, srun --ntasks-per-node=1 torchrun --nproc_per_node=N … train.py starts the same ranks"),
    Hint(r"\$\{?SLURM_ARRAY_JOB_ID\b", "SLURM_ARRAY_JOB_ID is not set: each task is a run with jobs of its own"),
    Hint(r"\A(?:nohup )?(?:srun|torchrun|python3?|accelerate|deepspeed) .{0,4000} [&1]?>{1,2} ?(?!&|/dev/null)[^ >]",
         "its output goes to a file of your own, where safelaunch sees no step of it: leave the redirection out, and "
         "read it with safelaunch logs"),
    Hint(r"\A(?:export )?\w{0,40}(?:TOKEN|API_KEY|SECRET|PASSWORD)=[\"']?[A-Za-z0-9]",
         "a secret in the script, which the run folder then holds, too: write it into a file that only you can read, "
         "and $(cat FILE) here"),
    Hint(r"\A(?:exec|nohup|timeout \S{1,20}) srun\b",
         "where the script sets PATH anew (module load, source) this srun is the plain one, without node guards; write "
         "srun alone"),
)


def find_hints(statements: list[Statement], file: str) -> list[str]:
    """One sentence for each statement that is met, in the order of their lines."""
    found = []
    for statement in statements:
        code = re.sub(r"'[^']*'", "''", statement.text)
        found += [f"{file}:{statement.number}: {hint.text}" for hint in HINTS if re.search(hint.pattern, code)]
    return found
