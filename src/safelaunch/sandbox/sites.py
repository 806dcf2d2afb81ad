"""Sites that forbid things: job dependencies, which Slurm refuses, and commands that compute nodes do not have."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from safelaunch.errors import SandboxError

DEPENDENCY = "dependency"
COMMANDS = ("sbatch", "scontrol", "scancel", "squeue", "sinfo", "sacct", "srun", "salloc")
PLUGIN = "JobSubmitPlugins=lua"
# Slurm looks for it beside slurm.conf. Real sites that allow no dependencies do it this way. "" clears a dependency.
# A rule against jobs from compute nodes is not among these: slurmctld knows the machine by munge's origin (22.05), and
# all machines of a sandbox share one munged.
JOB_SUBMIT_LUA = """\
local function check(request)
  if request.dependency ~= nil and request.dependency ~= "" then
    slurm.log_user("job dependencies are not allowed here")
    return slurm.ERROR
  end
  return slurm.SUCCESS
end

function slurm_job_submit(request, partitions, uid)
  return check(request)
end

function slurm_job_modify(request, job, partitions, uid)
  return check(request)
end
"""


def forbid_dependencies(folder: Path) -> None:
    """Lay out what makes slurmctld refuse jobs with a dependency, once it reads its configuration again."""
    (folder / "job_submit.lua").write_text(JOB_SUBMIT_LUA)
    conf = folder / "slurm.conf"
    text = conf.read_text()
    if PLUGIN not in text.splitlines():
        fresh = conf.with_suffix(".new")  # whole or not at all: every command reads it at any moment
        fresh.write_text(f"{text}{PLUGIN}\n")
        fresh.replace(conf)


def hide_command(folder: Path, command: str, path: str) -> None:
    """Record that nodes do not have this command; SandboxError for one that is no command of Slurm's."""
    if command not in COMMANDS:
        raise SandboxError(f"{command!r} cannot be forbidden: {', '.join((DEPENDENCY, *COMMANDS))}")
    found = shutil.which(command, path=path)
    if found is None:
        raise SandboxError(f"{command} is not installed: there is nothing to forbid")
    place = Path(found).parent.resolve()
    layer = folder / "site" / place.relative_to("/")
    layer.mkdir(parents=True, exist_ok=True)
    if not os.path.lexists(layer / command):
        # A whiteout: in the upper one of two folders that lie over each other it hides the file of its name in the
        # lower one (overlayfs). An empty file over the command would not do: `command -v` still finds it.
        os.mknod(layer / command, stat.S_IFCHR, os.makedev(0, 0))


def hidden(folder: Path) -> list[tuple[Path, Path]]:
    """Which folders lie over which on every node, for the commands that are hidden there."""
    layers = sorted({whiteout.parent for whiteout in (folder / "site").glob("**/*") if not whiteout.is_dir()})
    return [(layer, Path("/") / layer.relative_to(folder / "site")) for layer in layers]
