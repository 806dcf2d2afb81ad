"""Why Slurm lets a job wait, in words: the reasons that squeue prints (squeue(1), JOB REASON CODES)."""

from __future__ import annotations

REASONS: dict[str, str] = {
    "None": "Slurm has not looked at it yet",
    "Resources": "the nodes that it needs are not free",
    "Priority": "jobs of higher priority come first",
    "Dependency": "it waits for another job",
    "DependencyNeverSatisfied": "the job that it waits for has ended in another way: it never starts",
    "BeginTime": "the time before which it must not start has not come",
    "JobHeldUser": "its owner holds it: scontrol release",
    "JobHeldAdmin": "an administrator holds it: ask them",
    "JobHoldMaxRequeue": "it was requeued too often and is held",
    "JobArrayTaskLimit": "enough tasks of its array run",
    "JobLaunchFailure": "it could not be started",
    "BadConstraints": "no node is as it asks: see its constraints and its excluded nodes",
    "NodeDown": "a node that it needs is down",
    "ReqNodeNotAvail": "a node that it needs is down, drained or reserved",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition starts no jobs",
    "PartitionNodeLimit": "it asks for more or fewer nodes than its partition allows",
    "PartitionTimeLimit": "its time limit is above the partition's",
    "Reservation": "its reservation has not begun",
    "ReservationDeleted": "its reservation is gone",
    "Licenses": "no licence is free",
    "Cleaning": "its last run is being cleaned up",
    "Prolog": "the prolog of its nodes runs",
    "InvalidAccount": "its account is not valid",
    "InvalidQOS": "its QOS is not valid",
    "QOSNotAllowed": "its partition does not take its QOS",
    "AccountNotAllowed": "its partition does not take its account",
}
# Limits have some 150 codes, such as AssocGrpGRES and QOSMaxJobsPerUserLimit.
_LIMITS = {"Assoc": "a limit of its account or user is reached", "QOS": "a limit of its QOS is reached",
           "MaxJobsPerAccount": "a limit of its account is reached"}


def in_words(reason: str) -> str:
    """Resources: the nodes that it needs are not free. A reason that nobody knows comes as Slurm says it."""
    code = reason.partition(",")[0].strip("() ")   # "ReqNodeNotAvail, UnavailableNodes:n[0-3]"
    words = REASONS.get(code) or next((told for start, told in _LIMITS.items() if code.startswith(start)), None)
    return f"{reason}: {words}" if words else reason
