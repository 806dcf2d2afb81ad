"""The categories of causes, one row each: what `why` advises, what follows a failure, whether nodes are blamed, what a
person should do.

A new one is a row here, its page in core/why/show/helppages.py, its words in core/why/weigh/words.py, and its row in
docs/why.md.
"""

from __future__ import annotations

from typing import NamedTuple

# What can follow a failure (`restart.policy`). A number behind a word is its budget: failures of the category without a
# new verified checkpoint.
POLICY_WORDS = {
    "restart": "again on the same nodes, after a growing pause from the second failure on",
    "exclude": "restart, and keep nodes out that have enough evidence against them (core.ledger)",
    "once": "restart only if the attempt got further than the last one that failed like this; else stop",
    "wait": "restart once the folders of the run work again",
    "fall_back": "restart from the checkpoint before the one that did not load",
    "continue": "go on in the next job; costs no budget",
    "stop": "never restart",
}

# What `why` advises, for people.
ADVICE = {
    "restart": "restart it", "exclude_and_restart": "restart it without the node", "requeue_only": "queue it again",
    "fix_user_code": "fix the program", "fix_environment": "fix the environment", "fix_config": "fix the configuration",
    "fix_storage": "fix the storage", "none": "nothing to do",
}


class Blame(NamedTuple):
    """Kinds of evidence against a culprit's node (core.ledger): from a confident verdict, and from a doubtful one."""

    sure: str = "first_to_fail"
    doubtful: str = "first_to_fail"


class Category(NamedTuple):
    """What follows from one category."""

    action: str           # a key of ADVICE; a rule may name a better one
    then: str             # a key of POLICY_WORDS; "" = it is no failure
    budget: int | None    # None = only the run's own budgets count
    because: str          # why this follows
    to_do: str            # for a person, where a restart is not enough
    blame: Blame | None = None       # None = no node's fault
    ask_site: str = ""               # what only administrators can mend
    is_bad_node: bool = False        # another node's turn is no repetition: it has budgets of its own
    spares_checkpoint: bool = False  # it says nothing against the checkpoint that the attempt had loaded
    stalls_a_rank: bool = False      # logged by one rank, it explains why the others hung


# once and stop follow only confident verdicts: a wrong "give up" is worse than one restart too many. No node is blamed
# for the user's code, files and settings, nor for what Slurm and people do. A full or frozen storage is so everywhere,
# and the next node has no more memory.
TABLE: dict[str, Category] = {
    "gpu_hardware": Category(
        "exclude_and_restart", "exclude", 10, "one dead GPU of 384 cost a 176B training 7.3 h until somebody looked",
        "have the node's GPU looked at (safelaunch why --ticket)", Blame("gpu", "gpu_maybe"),
        ask_site="Please drain the node, check the GPU (dmesg for Xid, nvidia-smi -q, dcgmi diag -r 3) and reset or "
                 "replace it.",
        is_bad_node=True, spares_checkpoint=True, stalls_a_rank=True),
    "node_failure": Category(
        "exclude_and_restart", "exclude", 10, "the others are fine; Slurm itself needs 5 min and more to notice",
        "have the node looked at (safelaunch why --ticket)", Blame("lost"),
        ask_site="Please check the node's state, its reason in Slurm and its system log. (A node guard is a process "
                 "of the job on each node, which answers its supervisor as long as the node lives.)",
        is_bad_node=True, spares_checkpoint=True, stalls_a_rank=True),
    "network": Category(
        "restart", "exclude", 6, "a link flaps and comes back; a node is blamed from its second time on",
        "have the link looked at (safelaunch why --ticket)", Blame("network"),
        ask_site="Please check the port, cable and switch side of the adapters of the node (link state, error "
                 "counters).",
        spares_checkpoint=True),
    "hang": Category(
        "restart", "exclude", 6, "the odd ranks' nodes are under suspicion, lightly",
        "look at the ranks that the others waited for (safelaunch why)", Blame("hang")),
    "native_crash": Category(
        "restart", "exclude", 4, "a bug or a bad GPU: the first to fail is watched, lightly",
        "look at the core file, and build matching versions", Blame()),
    "host_oom": Category(
        "fix_config", "restart", 3, "a leak starts anew with the process",
        "ask for more memory (slurm.mem), or use fewer loader workers",
        stalls_a_rank=True),
    "storage": Category(
        "fix_storage", "wait", 6, "a full or frozen filesystem fails every attempt until it works again",
        "free space, or move the run to another file system",
        ask_site="Please check the file system and its mount on the nodes that are named.",
        spares_checkpoint=True, stalls_a_rank=True),
    "checkpoint": Category(
        "fix_config", "fall_back", None, "the one before it was whole",
        "look at the checkpoints, and resume from an older one"),
    "rendezvous": Category(
        "restart", "restart", 5, "a port in use, a store too slow: each attempt has a port of its own",
        "look at what holds the port, and at the first node's address", Blame(),
        spares_checkpoint=True),
    "data": Category(
        "fix_user_code", "restart", 3, "a worker killed or a read that failed may go well the next time",
        "repair or skip the data"),
    "hub_auth": Category(
        "fix_config", "restart", 4, "hubs and trackers have bad minutes",
        "download beforehand, and run offline",
        spares_checkpoint=True),
    "user_code": Category(
        "fix_user_code", "once", None, "the same code fails the same way",
        "fix the program"),
    "config": Category(
        "fix_config", "once", None, "the same values fail the same way",
        "change the value"),
    "environment": Category(
        "fix_environment", "once", None, "the same packages fail the same way",
        "install or rebuild what is missing"),
    "version_mismatch": Category(
        "fix_environment", "once", None, "the same packages fail the same way",
        "pin versions that go together"),
    "cuda_oom": Category(
        "fix_config", "once", None, "memory that is too small stays too small; fragmentation does not",
        "use a smaller micro batch, activation checkpointing or more sharding"),
    "numerical": Category(
        "fix_config", "once", None, "a deterministic NaN comes back; one from a bad GPU does not",
        "go back to an older checkpoint, skip the samples or lower the learning rate"),
    "time_limit": Category(
        "requeue_only", "continue", None, "the job was too short, the training did nothing wrong", ""),
    "preempted": Category(
        "requeue_only", "continue", None, "somebody else needed the nodes", ""),
    "cancelled": Category(
        "none", "stop", None, "a person's request is final", ""),
    "unknown": Category(
        "restart", "exclude", None, "a small budget, and the first to fail is watched, lightly",
        "look at the log of the rank that ended first (safelaunch logs --rank R)", Blame()),
    "none": Category(
        "none", "", None, "", ""),
}

NAMES = tuple(name for name, row in TABLE.items() if row.then)   # of failures
BAD_NODE = frozenset(name for name, row in TABLE.items() if row.is_bad_node)
SPARES_CHECKPOINT = frozenset(name for name, row in TABLE.items() if row.spares_checkpoint)
BEHIND_A_HANG = frozenset(name for name, row in TABLE.items() if row.stalls_a_rank)


def advice(category: str) -> str:
    """The action that `why` advises when no rule names a better one; of a category of another version: restart."""
    row = TABLE.get(category)
    return row.action if row is not None else "restart"
