"""Sites that forbid things: commands that compute nodes do not have, and requests that Slurm refuses."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from safelaunch.errors import SandboxError


@dataclass(frozen=True)
class Refusal:
    """What slurmctld refuses by job_submit.lua: a condition in Lua, and what the user reads."""

    condition: str
    says: str
    of_changes: bool  # `scontrol update` as well; the plugin is not told from which machine a change comes


REFUSALS = {
    "dependency": Refusal(
        'request.dependency ~= nil and request.dependency ~= ""', "job dependencies are not allowed here", True
    ),
    "submit": Refusal(
        'string.match(request.alloc_node or "", "^n%d+$") ~= nil', "compute nodes may not submit jobs here", False
    ),
}
COMMANDS = ("sbatch", "scontrol", "scancel", "squeue", "sinfo", "sacct", "srun", "salloc")
LUA = "JobSubmitPlugins=lua"


def forbid(folder: Path, word: str, path: str) -> None:
    """Record that this is forbidden from now on; SandboxError for a word that is unknown."""
    (folder / "site").mkdir(exist_ok=True)
    if word in REFUSALS:
        (folder / "site" / word).touch()
        _replace(folder / "job_submit.lua", render_job_submit_lua([w for w in REFUSALS if is_forbidden(folder, w)]))
        conf = folder / "slurm.conf"
        if LUA not in conf.read_text().splitlines():
            _replace(conf, f"{conf.read_text()}{LUA}\n")
    elif word in COMMANDS:
        found = shutil.which(word, path=path)
        if found is None:
            raise SandboxError(f"{word} is not installed: there is nothing to forbid")
        (folder / "site" / word).touch(mode=0o000)
    else:
        raise SandboxError(f"{word!r} cannot be forbidden: {', '.join((*REFUSALS, *COMMANDS))}")


def is_forbidden(folder: Path, word: str) -> bool:
    """This was forbidden before."""
    return (folder / "site" / word).exists()


def hidden_commands(folder: Path, path: str) -> list[tuple[Path, Path]]:
    """What lies over what on a node: an empty file that nobody can execute over each forbidden command.

    `command -v` and a search of PATH pass it by, so the command is as good as not installed.
    """
    found = [(folder / "site" / word, shutil.which(word, path=path)) for word in COMMANDS if is_forbidden(folder, word)]
    return [(cover, Path(command).resolve()) for cover, command in found if command]


def render_job_submit_lua(words: list[str]) -> str:
    """job_submit.lua with these refusals; slurmctld reads it again whenever it changes."""
    return (
        f"function slurm_job_submit(request, partitions, uid)\n{_checks(words)}  return slurm.SUCCESS\nend\n\n"
        "function slurm_job_modify(request, job, partitions, uid)\n"
        f"{_checks([word for word in words if REFUSALS[word].of_changes])}  return slurm.SUCCESS\nend\n"
    )


def _checks(words: list[str]) -> str:
    return "".join(
        f'  if {REFUSALS[word].condition} then\n    slurm.log_user("{REFUSALS[word].says}")\n    return slurm.ERROR\n'
        "  end\n"
        for word in words
    )


def _replace(path: Path, text: str) -> None:
    # Whole or not at all: slurmctld and every command read these at any moment.
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)
