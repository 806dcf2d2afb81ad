"""srun's own words on a step that cannot start: which srun waits, and when nothing can ever end that."""

from __future__ import annotations

from safelaunch.hangs import stepstart
from safelaunch.hangs.stepstart import BUSY, END_S, TELL_S, Then, Waiter
from tests.tables import each

FIRST = f"srun: Job 12 step creation temporarily disabled, retrying ({BUSY})"
STILL = f"srun: Job 12 step creation still disabled, retrying ({BUSY})"
OLD = f"srun: Job step creation temporarily disabled, retrying ({BUSY})"
MADE = "srun: Step created for StepId=12.0"
PROLOG = "srun: Job 12 step creation temporarily disabled, retrying (Prolog running)"
OWN_JOB = "srun: job 77 queued and waiting for resources"

# name: log, is_script, guards, step guards, tasks, place
PLACES = {
    "the attempt's own srun waits": ([FIRST, STILL], False, 0, 0, 4, Waiter.LAUNCH),
    "an older release says it without a number": ([OLD], False, 0, 0, 4, Waiter.LAUNCH),
    "srun says it as an error": ([FIRST.replace("srun: ", "srun: error: ")], False, 0, 0, 4, Waiter.LAUNCH),
    "the step has been made since": ([FIRST, MADE], False, 0, 0, 4, None),
    "no rank has said anything yet": ([], False, 0, 0, 4, None),
    "ranks talk of something else": (["[n0:0]:loading", "[n1:1]:loading"], False, 2, 0, 2, None),
    "each rank calls srun": ([f"[n0:0]:{FIRST}", f"[n1:1]:{FIRST}", f"[n0:0]:{STILL}"], False, 2, 0, 2, Waiter.INSIDE),
    "each rank of torchrun does": ([f"[n0:{rank}]:{FIRST}" for rank in range(4)], False, 1, 0, 1, Waiter.INSIDE),
    "one of the ranks does, for a helper": ([f"[n0:0]:{FIRST}"], False, 2, 0, 2, None),
    "… while others work": ([f"[n0:0]:{FIRST}", "[n1:1]:epoch 1", f"[n1:1]:{FIRST}", "[n0:0]:x"], False, 2, 0, 2, None),
    "they got their step at last": (
        [f"[n0:0]:{FIRST}", f"[n1:1]:{FIRST}", f"[n0:0]:{MADE}", f"[n1:1]:{MADE}"], False, 2, 0, 2, None),
    "a training prints these words": ([f"note: {FIRST}"], False, 0, 0, 1, None),
    "a script's only srun waits": (["preparing", FIRST, STILL], True, 1, 0, 1, Waiter.SCRIPT),
    "a script's srun waits for others of it": ([FIRST, STILL], True, 1, 3, 1, None),
    "a script goes on behind it": ([FIRST, "srun gave up, evaluating here"], True, 1, 0, 1, None),
    "srun asks for a job of its own": ([f"[n0:0]:{OWN_JOB}"], False, 1, 0, 1, Waiter.INSIDE),
    "… and got it": ([f"[n0:0]:{OWN_JOB}", "[n0:0]:srun: job 77 has been allocated resources"], False, 1, 0, 1, None),
}


@each("lines,is_script,guards,step_guards,tasks,place", PLACES.values(), ids=PLACES)
def test_which_srun_waits(
    lines: list[str], is_script: bool, guards: int, step_guards: int, tasks: int, place: Waiter | None
) -> None:
    wait = stepstart.read("\n".join(lines))
    assert stepstart.place_of(
        wait, is_script=is_script, guards=guards, step_guards=step_guards, tasks=tasks) is place


# name: place, words, seconds, steps of the job that run (None: Slurm does not answer), what follows
THEN = {
    "it has just begun": (Waiter.LAUNCH, BUSY, 0.0, 0, Then.WATCH),
    "after three minutes it is told": (Waiter.LAUNCH, BUSY, TELL_S, 0, Then.TELL),
    "after five it is ended": (Waiter.LAUNCH, BUSY, END_S, 0, Then.END),
    "another step holds the nodes: that may end": (Waiter.LAUNCH, BUSY, 3600.0, 1, Then.TELL),
    "nobody knows which steps run": (Waiter.LAUNCH, BUSY, 3600.0, None, Then.TELL),
    "the outer step holds all": (Waiter.INSIDE, BUSY, END_S, 1, Then.END),
    "another step beside the outer one": (Waiter.INSIDE, BUSY, END_S, 2, Then.TELL),
    "sruns of a script behind each other": (Waiter.SCRIPT, BUSY, 3600.0, 2, Then.WATCH),
    "a script of which nobody knows the steps": (Waiter.SCRIPT, BUSY, 3600.0, None, Then.WATCH),
    "a script without a step": (Waiter.SCRIPT, BUSY, END_S, 0, Then.END),
    "Slurm's prolog takes long": (Waiter.LAUNCH, "Prolog running", 3600.0, 0, Then.TELL),
    "a job of its own comes some day": (Waiter.INSIDE, "it waits for job 77, one of its own", 3600.0, 1, Then.TELL),
}


@each("place,why,waits_s,steps,then", THEN.values(), ids=THEN)
def test_what_follows(place: Waiter, why: str, waits_s: float, steps: int | None, then: Then) -> None:
    assert stepstart.judge(place, why, waits_s, steps) is then


def test_it_is_told_with_what_holds_it_and_what_to_do() -> None:
    assert "12.3 (eval)" in stepstart.tell(Waiter.LAUNCH, BUSY, "12.3 (eval)")
    assert "leave that srun out" in stepstart.tell(Waiter.INSIDE, BUSY, "")
    assert "SLURM_JOB_ID" in stepstart.tell(Waiter.INSIDE, "it waits for job 77, one of its own", "")
