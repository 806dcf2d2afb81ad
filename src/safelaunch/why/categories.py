"""The categories of causes: what `why` advises and explains, what follows a failure, whether nodes are blamed.

A new one is one row, in why/causes/surroundings.py or why/causes/program.py, and its row in docs/why.md.
"""

from __future__ import annotations

from safelaunch.why.causes import program, surroundings
from safelaunch.why.causes.category import Category

# Where the words of an error speak alike for several categories, the first one here is taken: the special before the
# general.
# once and stop follow only confident verdicts: a wrong "give up" is worse than one restart too many. No node is blamed
# for the user's code, files and settings, nor for what Slurm and people do. A full or frozen storage is so everywhere,
# and the next node has no more memory.
TABLE: dict[str, Category] = {**surroundings.ROWS, **program.ROWS}

NAMES = tuple(name for name, row in TABLE.items() if row.then)   # of failures
BAD_NODE = frozenset(name for name, row in TABLE.items() if row.is_bad_node)
SPARES_CHECKPOINT = frozenset(name for name, row in TABLE.items() if row.spares_checkpoint)
BEHIND_A_HANG = frozenset(name for name, row in TABLE.items() if row.stalls_a_rank)
RECURS_ON_A_NODE = frozenset(name for name, row in TABLE.items() if row.recurs_on_a_node)
OF_THE_PROGRAM = frozenset(name for name, row in TABLE.items() if row.is_programs_own)
ENDS_OF_JOBS = frozenset(name for name, row in TABLE.items() if row.ends_jobs)


def advice(category: str) -> str:
    """The action that `why` advises when no rule names a better one; of a category of another version: restart."""
    row = TABLE.get(category)
    return row.action if row is not None else "restart"
