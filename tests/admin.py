"""What administrators do to a cluster, done to a sandbox: forbid things, end slurmctld, freeze a slurmd."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

from safelaunch.sandbox import daemons, sites
from safelaunch.sandbox.cluster import Sandbox, daemons_on
from safelaunch.sandbox.namespaces import is_stopped, share_mounts
from tests.sandboxes import wait_until

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


def forbid(sandbox: Sandbox, word: str) -> None:
    """Make this a site that forbids something, for jobs that start from now on, until the sandbox is down.

    `dependency`: Slurm refuses jobs with one. A command such as `sbatch` or `scontrol`: compute nodes do not have it,
    other machines do.
    """
    if word == "dependency":
        _forbid_dependencies(sandbox.dir)
        sandbox.slurm(["scontrol", "reconfigure"])
        return
    found = shutil.which(word, path=daemons.PATH)
    assert found is not None, f"{word} is not installed: there is nothing to forbid"
    sites.lay_whiteout(sandbox.dir, Path(found))
    share_mounts(sandbox.dir / "work")
    for node in sandbox.nodes:
        sandbox.restart_slurmd(node)


def _forbid_dependencies(folder: Path) -> None:
    (folder / "job_submit.lua").write_text(JOB_SUBMIT_LUA)
    conf = folder / "slurm.conf"
    text = conf.read_text()
    if PLUGIN not in text.splitlines():
        put_conf(conf, f"{text}{PLUGIN}\n")


def put_conf(conf: Path, text: str) -> None:
    """Another slurm.conf, whole or not at all: every command reads it at any moment."""
    fresh = conf.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(conf)


def stop_ctl(sandbox: Sandbox) -> None:
    """End slurmctld properly: it saves its state first, so no job is forgotten. `heal("ctl")` starts it again."""
    machine = sandbox.machine(daemons.CONTROLLER)
    for pid in daemons_on(machine):
        with suppress(ProcessLookupError):   # a child that has ended with its parent
            os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not machine.pids(), 60, "slurmctld did not end")


def freeze_slurmd(sandbox: Sandbox, node: str) -> None:
    """Stop a node's slurmd alone: steps go on, and nothing can be started, signalled or asked there any more."""
    machine = sandbox.machine(node)
    for pid in daemons_on(machine):
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: all(map(is_stopped, daemons_on(machine))), 60, f"slurmd on {node} does not stop")


def thaw_slurmd(sandbox: Sandbox, node: str) -> None:
    """Let a frozen slurmd go on."""
    for pid in daemons_on(sandbox.machine(node)):
        os.kill(pid, signal.SIGCONT)
