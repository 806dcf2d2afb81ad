"""What a row of the table of causes holds, and the words of policy and advice in it."""

from __future__ import annotations

from typing import NamedTuple

# What can follow a failure (`restart.policy`). A number behind a word is its budget: failures of the category without a
# new verified checkpoint.
POLICY_WORDS = {
    "restart": "again on the same nodes, after a growing pause from the second failure on",
    "exclude": "restart, and keep nodes out that have enough evidence against them (safelaunch nodes)",
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
    "look": "look at the last lines: nothing tells whether it is well",
}


class Blame(NamedTuple):
    """Kinds of evidence against a culprit's node (nodehealth.ledger): from a confident verdict, from a doubtful one."""

    sure: str = "first_to_fail"
    doubtful: str = "first_to_fail"


class Page(NamedTuple):
    """One category for people (`why --explain`). `check` are things to type or to look at, the cheapest first, and
    `alive` those that tell nothing once the ranks have ended.
    """

    title: str
    means: str
    check: tuple[str, ...]
    then: str
    alive: tuple[str, ...] = ()


class Category(NamedTuple):
    """What follows from one category."""

    action: str           # a key of ADVICE; a rule may name a better one
    then: str             # a key of POLICY_WORDS; "" = it is no failure
    budget: int | None    # None = only the run's own budgets count
    because: str          # why this follows
    to_do: str            # for a person, where a restart is not enough
    page: Page
    blame: Blame | None = None       # None = no node's fault
    ask_site: str = ""               # what only administrators can mend
    is_bad_node: bool = False        # another node's turn is no repetition: it has budgets of its own
    spares_checkpoint: bool = False  # it says nothing against the checkpoint that the attempt had loaded
    stalls_a_rank: bool = False      # logged by one rank, it explains why the others hung
    recurs_on_a_node: bool = False   # where no node is named, the ledger's earlier evidence makes one a suspect
    is_programs_own: bool = False    # the same code and settings fail the same way on every node
    ends_jobs: bool = False          # from outside: nothing in the program catches it, and no node is its place
