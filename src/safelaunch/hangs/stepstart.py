"""An attempt whose job step never starts: srun says so each minute, and no rank is there that a hang check could find.

Where steps queue behind each other on purpose (`srun … & srun … & wait`, `parallel -j`), the same words are normal. So
nothing is ended while another step of the job runs, which may give its resources back.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

TELL_S, END_S = 180.0, 300.0   # after srun has begun to say so
BUSY = "Requested nodes are busy"
_RANK = r"(?:\[(?P<rank>[^\[\]\s]{1,300}:\d{1,9})\]: ?)?"
# src/srun and src/api/step_launch.c say the first; src/api/allocate.c the second, of an srun outside of its job.
_WAITS = re.compile(_RANK + r"(?:\d{1,9}: )?srun: (?:error: )?(?:[Jj]ob (?:\d{1,12} )?)?step creation "
                    r"(?:temporarily|still) disabled, retrying \((?P<why>[^)]{1,200})\)")
_QUEUES = re.compile(_RANK + r"(?:\d{1,9}: )?srun: job (?P<job>\d{1,12}) queued and waiting for resources")
_SAYS = re.compile(_RANK + ".")


class StepWait(NamedTuple):
    """What the end of a log says: srun waits, and why."""

    why: str
    ranks: int          # whose last line says so; 0: a plain srun says it, of no rank
    has_others: bool    # some rank's last line says something else
    is_last: bool       # it is the last line of all


def read(text: str) -> StepWait | None:
    """The wait that the end of a log tells; None = none, or it is over."""
    last: dict[str, str | None] = {}
    rank = ""
    for line in text.splitlines():
        said = _SAYS.match(line)
        if said is None:
            continue
        rank = said["rank"] or ""
        if (waits := _WAITS.match(line)) is not None:
            last[rank] = waits["why"]
        elif (queues := _QUEUES.match(line)) is not None:
            last[rank] = f"it waits for job {queues['job']}, one of its own"
        else:
            last[rank] = None
    why = next((said for said in last.values() if said is not None), None)
    if why is None:
        return None
    ranks = {name: said for name, said in last.items() if name}
    return StepWait(why, sum(said is not None for said in ranks.values()), None in ranks.values(),
                    last[rank] is not None)


class Waiter(Enum):
    """Whose srun waits."""

    LAUNCH = "the attempt's own"
    INSIDE = "one that each rank has started"
    SCRIPT = "one of the user's script"


CAUSES = {
    Waiter.LAUNCH: "do the job's numbers fit each of its nodes (GPUs spread unevenly, memory of a step)?",
    Waiter.INSIDE: "command calls srun inside a job step, which holds all that the inner one asks for: leave that srun "
                  "out (launch.with: srun starts the ranks), or give it --overlap",
    Waiter.SCRIPT: "no step of the job runs that could give anything back: does the srun ask for more than a node of "
                   "the job has (GPUs of --gpus that Slurm has spread unevenly, memory, processors)?",
}


def place_of(wait: StepWait | None, *, is_script: bool, guards: int, step_guards: int, tasks: int) -> Waiter | None:
    """Whose srun waits; None = none that holds up the attempt. `guards`: of its ranks; `step_guards`: of a script's
    steps, as far as they live.
    """
    if wait is None:
        return None
    if is_script:
        return Waiter.SCRIPT if wait.is_last and not step_guards else None
    if not guards:
        return Waiter.LAUNCH if not wait.ranks and not wait.has_others else None
    return Waiter.INSIDE if wait.ranks >= tasks and not wait.has_others else None


class Then(Enum):
    """What follows."""

    WATCH = "wait: it may start yet"
    TELL = "say that the step cannot start"
    END = "end the attempt: it never will"


def judge(place: Waiter, why: str, waits_s: float, steps: int | None) -> Then:
    """`steps`: those of the job that run, helpers left out; None = Slurm has not said."""
    held_by_others = steps is None or steps > (place is Waiter.INSIDE)
    if waits_s < TELL_S or (held_by_others and place is Waiter.SCRIPT):
        return Then.WATCH
    return Then.END if waits_s >= END_S and why == BUSY and not held_by_others else Then.TELL


def tell(place: Waiter, why: str, others: str) -> str:
    """For people; `others`: the steps that hold what it waits for."""
    held = f"; other steps of the job run: {others}" if others else ""
    own = "SLURM_JOB_ID is not set where it runs" if why.startswith("it waits for job ") else CAUSES[place]
    return f"the step cannot start: {why}{held}; {own}"
