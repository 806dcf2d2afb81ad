"""Which fragments of templates/slurm a job script is made of: the job above, its supervision below, and no more than
this run needs. A fragment is fixed text; nothing is filled into it but the two marked blocks of `head`.
"""

from __future__ import annotations

from collections.abc import Mapping

from safelaunch.errors import TemplateError
from safelaunch.launch.launchers import LAUNCHERS
from safelaunch.run.plan import Plan

ALL = ("head", "train", "script", *(f"launch/{name}" for name, row in LAUNCHERS.items() if not row.is_script), "end",
       "node", "prefix", "shell", "setup", "task", "ranks", "names", "handover", "container", "attempt", "common",
       "resize", "own", "srun", "supervise", "main")


def names(plan: Plan) -> tuple[str, ...]:
    """The fragments of a plan's script, in their order."""
    if plan.is_script:
        return ("head", "script", "end", "node", "prefix", "own", "common", "srun", "supervise", "main")
    by = plan.launch.by
    starts_ranks, is_resized = LAUNCHERS[by].starts_ranks, bool(plan.before_resize)
    has_setup = bool(plan.setup or plan.launch.login_shell)
    is_task = is_resized or not starts_ranks
    wanted = {"setup": has_setup, "prefix": is_task, "task": is_task, "ranks": starts_ranks,
              "names": LAUNCHERS[by].is_nameless,
              "handover": has_setup and starts_ranks, "container": plan.container is not None, "resize": is_resized,
              "script": False, "own": False, "srun": False, f"launch/{by}": True}
    return tuple(name for name in ALL if wanted.get(name, not name.startswith("launch/")))


def join(fragments: Mapping[str, str], plan: Plan) -> str:
    """The template of a plan's script. Raises TemplateError where a fragment is missing."""
    try:
        return "".join(fragments[name] for name in names(plan))
    except KeyError as error:
        raise TemplateError(f"the template templates/slurm/{error.args[0]}.sh is missing") from None
