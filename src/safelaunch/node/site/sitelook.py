"""What a node of this site lets a run do, as checks in the form of node/checks/main.py; one JSON line. Asked with a
peer, it only meets that node by a TCP connection, as guards and training do. Standard library, Python 3.9.
"""

from __future__ import annotations

import os
import sys
import time

from safelaunch.node import addresses, children
from safelaunch.node.bench import pair
from safelaunch.node.checks.answer import failed, ok, print_answer, skipped, unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

PTRACE = "/proc/sys/kernel/yama/ptrace_scope"
PROGRAM_S = 15.0
LOCAL = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - where a supervisor lives, in this order


def _programs(fields: Mapping[str, Any]) -> list[children.Task]:
    """What is asked of Slurm from this node: about this job, for a step beside this one, for another job."""
    job, env = str(fields.get("job") or ""), dict(os.environ)
    if not job:
        return []
    # In a step, sbatch and srun would read the options of the job around them; a name is no part of those.
    plain = {key: value for key, value in env.items() if key == "SLURM_CONF" or not key.startswith(("SLURM", "SBATCH"))}
    argv = {"scontrol": ["scontrol", "--oneliner", "show", "job", job],
            "squeue": ["squeue", "--noheader", "--jobs=" + job, "--format=%i"],
            "sbatch": ["sbatch", "--test-only", *texts(fields, "options"), "--wrap=true"]}
    tasks = [children.Task(name, line, PROGRAM_S, plain) for name, line in argv.items()]
    if fields.get("node"):
        beside = ["srun", "--jobid=" + job, "--overlap", "--nodes=1", "--ntasks=1", "--nodelist=%s" % fields["node"],
                  "--mem=0", "--gpus=0", "--gpus-per-node=0", "--gpus-per-task=0", "true"]
        tasks.append(children.Task("overlap", beside, PROGRAM_S, plain))
    return tasks


def texts(fields: Mapping[str, Any], key: str) -> list[str]:
    """The texts of a list; none where there is no list."""
    value = fields.get(key)
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def judge(outcome: children.Outcome) -> dict[str, Any]:
    """How a program answered; the facts tell whether there is one at all."""
    if outcome.late:
        return failed("no answer within %g s" % PROGRAM_S, missing=False)
    if outcome.code == 127:
        return failed("there is no such program", missing=True)
    if outcome.code != 0:
        return failed(outcome.said or "exit code %s" % outcome.code, missing=False)
    return ok("works", missing=False)


def read_ptrace(path: str = PTRACE) -> dict[str, Any]:
    """Whether a process may read the stacks of others of its user: ptrace(2), /proc/sys/kernel/yama."""
    try:
        with open(path) as file:
            scope = int(file.read(16))
    except FileNotFoundError:
        return ok("no restriction", scope=0)
    except (OSError, ValueError) as error:
        return unknown("%s: %s" % (path, error))
    return ok("ptrace_scope 0", scope=0) if scope == 0 else failed("ptrace_scope %d" % scope, scope=scope)


def read_local(folders: tuple[str, ...] = LOCAL) -> dict[str, Any]:
    """The first folder of this node's own disk that can be written; of SAFELAUNCH_LOCAL_DIR alone where that is set, as
    in job.sbatch.
    """
    chosen = os.environ.get("SAFELAUNCH_LOCAL_DIR")
    folders = (chosen,) if chosen else folders
    for folder in folders:
        path = os.path.join(folder, ".safelaunch-doctor-%d" % os.getpid())
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            os.unlink(path)
            return ok(folder)
        except OSError:
            continue
    return failed("none of %s can be written" % ", ".join(folders))


def look(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All rows."""
    rows = [{"name": "interpreter", "item": "", **ok("Python %d.%d.%d" % sys.version_info[:3])},
            {"name": "ptrace", "item": "", **read_ptrace()}, {"name": "local", "item": "", **read_local()}]
    tasks = _programs(fields)
    outcomes = children.run_all(tasks, len(tasks) or 1, time.monotonic() + PROGRAM_S + 1.0)
    return [*rows, *({"name": str(name), "item": "", **judge(outcome)} for name, outcome in outcomes.items())]


def meet(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The one row of a meeting."""
    request = pair.PairRequest(fields)
    met = pair.meet(request)
    if met is None:
        row = failed(pair.no_meeting(request))
    else:
        row = ok("%s:%d is reached from %s" % met) if not request.is_first else skipped("it was reached")
    return [{"name": "peer", "item": request.peer, **row}]


def main(text: str) -> int:
    """Print the answer to a request, a JSON object; 0, whatever happened."""
    return print_answer(text, "site", dict, lambda words, told: told.update(
        addresses=addresses.own_addresses(), checks=meet(words) if words.get("peer") else look(words)))
