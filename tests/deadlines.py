"""Verbs that wait longer than a person would: on a machine that stands still for half a minute a command of Slurm, git,
bash, or a child that reads a folder is late, and "late" is another answer. Most tests are about the answer.

Fixture `no_deadlines` (tests/conftest.py), and `python tests/deadlines.py VERB …` for a `safelaunch VERB …` in a
process of its own. A test of a deadline sets it anew.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

LONG_S = 120.0
# Module of safelaunch and the deadlines in it.
DEADLINES = {
    "adapters.bashtext": ("_DEADLINE_S",),
    "adapters.clustername": ("DEADLINE_S",),
    "adapters.diagnosis": ("DEADLINE_S",),
    "adapters.logs.linenumbers": ("BUDGET_S",),
    "adapters.notify": ("DEADLINE_S", "STEP_S"),
    "adapters.plugins": ("LOAD_S",),
    "adapters.registry": ("LOCK_S",),
    "adapters.sitefolder": ("DEADLINE_S",),
    "commands.nodes": ("ASK_SLURM_S",),
    "views.livecheckpoint": ("DEADLINE_S",),
    "views.runlist": ("DEADLINE_S",),
    "views.runs": ("FOLDER_DEADLINE_S", "SQUEUE_DEADLINE_S", "COMPLETION_S"),
    "views.sharedqueue": ("HOME_S",),
    "views.stopping": ("QUICK_S",),
    "views.submitplan": ("START_S", "LEDGER_S", "GIT_S"),
    "views.submitting": ("GIT_AGREED_S", "GIT_AFTER_S", "CLUSTER_S"),
    "views.teamruns": ("SQUEUE_DEADLINE_S", "FOLDERS_DEADLINE_S"),
    "views.whyevidence": ("SLURM_DEADLINE_S", "LEDGER_DEADLINE_S"),
    "views.whysubject": ("FOLDER_DEADLINE_S",),
    "watch.memory": ("HOME_S",),
    "watch.reading": ("DEADLINE_S",),
}


def lift(change: Callable[[object, str, object], None]) -> None:
    """Set all of them, as `setattr` does."""
    for name, deadlines in DEADLINES.items():
        module = importlib.import_module(f"safelaunch.{name}")
        for deadline in deadlines:
            change(module, deadline, LONG_S)


if __name__ == "__main__":
    del sys.path[0]   # this folder, whose names are common
    from safelaunch.cli import main

    lift(setattr)
    main(sys.argv[1:])
