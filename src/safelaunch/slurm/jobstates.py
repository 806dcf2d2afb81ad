"""Slurm's words for the state of a job, and what each means: squeue(1), "JOB STATE CODES", and sacct(1). A word that is
missing here is of an unknown release: such a job counts only as alive.
"""

from __future__ import annotations

PENDING = "PENDING"
CONFIGURING = "CONFIGURING"
RUNNING = "RUNNING"
SUSPENDED = "SUSPENDED"
STOPPED = "STOPPED"
COMPLETING = "COMPLETING"
REQUEUED = "REQUEUED"

BOOT_FAIL = "BOOT_FAIL"
CANCELLED = "CANCELLED"
COMPLETED = "COMPLETED"
DEADLINE = "DEADLINE"
FAILED = "FAILED"
NODE_FAIL = "NODE_FAIL"
OUT_OF_MEMORY = "OUT_OF_MEMORY"
PREEMPTED = "PREEMPTED"
REVOKED = "REVOKED"
TIMEOUT = "TIMEOUT"

# It waits in the queue, for whatever reason.
QUEUED = frozenset({PENDING, REQUEUED, "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
# It waits, has just got its nodes, or runs.
STARTING = frozenset({PENDING, CONFIGURING, RUNNING})
# Its processes may live on its nodes; Slurm has not said yet how it ends.
ON_NODES = frozenset({RUNNING, SUSPENDED, STOPPED, COMPLETING})
# It is over.
FINISHED = frozenset({
    BOOT_FAIL, CANCELLED, COMPLETED, DEADLINE, FAILED, NODE_FAIL, OUT_OF_MEMORY, PREEMPTED, REVOKED, TIMEOUT})
# Slurm ends it, or has ended it.
ENDING = FINISHED | {COMPLETING}
# A step's own end that names a cause; CANCELLED and FAILED are what srun does to the others.
STEP_CAUSES = frozenset({OUT_OF_MEMORY, NODE_FAIL, TIMEOUT})


def is_alive(state: str) -> bool:
    """Whether a job of that state is not over; an unknown word means yes."""
    return state not in FINISHED
