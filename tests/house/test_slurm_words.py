"""Slurm's words stand in one table, and its commands are made in one module."""

from __future__ import annotations

import ast

from safelaunch.slurm import jobstates
from tests.house.source import modules

SLURM = frozenset({"sacct", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun"})


def test_slurms_words_for_a_jobs_state_stand_in_one_table() -> None:
    """But for the rules of `why`, which read them in logs, and for node programs, which import nothing."""
    known = {value for name, value in vars(jobstates).items() if name.isupper() and isinstance(value, str)}
    said = {f"{module.name}:{node.lineno}" for module in modules()
            if module.path != "slurm/jobstates.py" and not module.path.startswith("why/rules")
            for node in module.all(ast.Constant) if node.value in known}
    assert said == set()


def test_slurms_commands_are_made_in_one_module() -> None:
    """But for the sandbox, which is an administrator, and for node programs, which import nothing."""
    made = {f"{module.name}:{node.lineno}" for module in modules()
            if module.path != "slurm/io/slurm.py" and not module.path.startswith(("sandbox/", "node/"))
            for node in module.sequences() if is_slurm_command(node)}
    assert made == set()


def test_a_command_of_slurm_is_seen_where_it_is_made() -> None:
    seen = [is_slurm_command(ast.parse(text, mode="eval").body) for text in (
        '["srun", "--overlap", *words]', '("scontrol", verb, job)', '("squeue", f"--job={job}")',
        '("squeue", "scontrol")', '("srun", *programs)', '("srun",)', '["env", "A=1"]')]
    assert seen == [True, True, True, False, False, False, False]


def is_slurm_command(node: ast.expr) -> bool:
    """A list or tuple of an argument list, not one of names."""
    if not isinstance(node, (ast.List, ast.Tuple)) or len(node.elts) < 2:
        return False
    first, second = node.elts[:2]
    is_name = isinstance(second, ast.Starred) or (isinstance(second, ast.Constant) and second.value in SLURM)
    return isinstance(first, ast.Constant) and first.value in SLURM and not is_name
