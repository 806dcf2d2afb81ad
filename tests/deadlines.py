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
    "config.io.bashtext": ("_DEADLINE_S",),
    "run.io.clustername": ("DEADLINE_S",),
    "why.io.diagnosis": ("DEADLINE_S",),
    "why.io.linenumbers": ("BUDGET_S",),
    "notify.io.notify": ("DEADLINE_S", "STEP_S"),
    "extensions.io.plugins": ("LOAD_S",),
    "run.io.registry": ("LOCK_S",),
    "site.io.sitefolder": ("DEADLINE_S",),
    "verbs.nodes.nodes": ("ASK_SLURM_S",),
    "verbs.overview.livecheckpoint": ("DEADLINE_S",),
    "verbs.overview.runlist": ("DEADLINE_S",),
    "verbs.common.runs": ("FOLDER_DEADLINE_S", "SQUEUE_DEADLINE_S", "COMPLETION_S"),
    "verbs.overview.sharedqueue": ("HOME_S",),
    "verbs.common.stopping": ("QUICK_S",),
    "verbs.submit.submitplan": ("START_S", "LEDGER_S", "GIT_S"),
    "verbs.submit.submitting": ("GIT_AGREED_S", "GIT_AFTER_S", "CLUSTER_S"),
    "verbs.common.teamruns": ("SQUEUE_DEADLINE_S", "FOLDERS_DEADLINE_S"),
    "verbs.why.whyevidence": ("SLURM_DEADLINE_S", "LEDGER_DEADLINE_S"),
    "verbs.why.whysubject": ("FOLDER_DEADLINE_S",),
    "watch.io.memory": ("HOME_S",),
    "watch.io.reading": ("DEADLINE_S",),
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
