"""How a user's own script has ended."""

from __future__ import annotations

from safelaunch.core.decide.scriptends import TaskEnd, exits_of
from safelaunch.core.model import Exit
from tests.tables import each

OK, BAD = Exit("n0", 0, 0), Exit("n0", 0, 143)
KILLED, ENDED = Exit("n1", 1, 137, 9), Exit("n0", 0, 143, 15)
TRAINED = [TaskEnd(2, 8.2, ENDED), TaskEnd(2, 8.1, KILLED), TaskEnd(1, 3.0, Exit("n0", 0, 1))]   # after a helper


@each(("own", "ends", "hides", "told"), [
    (BAD, [TaskEnd(0, 8.5, BAD), *TRAINED], False, (KILLED, ENDED)),
    (OK, [TaskEnd(0, 8.5, OK), *TRAINED], True, (KILLED, ENDED)),
    (OK, [TaskEnd(0, 8.5, OK), *TRAINED], False, (OK,)),                          # srun … || true
    (OK, [TaskEnd(0, 9.0, OK), *TRAINED, TaskEnd(3, 8.8, OK)], True, (OK,)),      # the next srun ended well
    (OK, [TaskEnd(0, 8.0, OK), *TRAINED[:2]], True, (OK,)),   # left behind, and ended
    (BAD, [TaskEnd(0, 1.0, BAD)], True, (BAD,)),
    (BAD, TRAINED, True, (BAD,)),                                                 # the script's own guard is silent
], ids=["fails", "hides", "handles", "went on", "left behind", "no srun", "silent"])
def test_a_script_that_fails_or_hides_a_failure_has_ended_as_the_first_rank_of_its_last_srun(
        own: Exit, ends: list[TaskEnd], hides: bool, told: tuple[Exit, ...]) -> None:
    assert exits_of((own,), ends, lambda: hides) == told
