"""What came of `safelaunch save`, look by look."""

from __future__ import annotations

from safelaunch.run.saved import Newest, Seen, judge
from tests.tables import each

OLD, NEW = Newest(10.0, "ckpt/step_10", 10), Newest(20.0, "ckpt/step_20", 20)
WAITS = Seen(is_there=True, heard=None, newest=OLD, living=2)
TAKEN = WAITS._replace(is_there=False)


@each(("seen", "confirmed", "is_late", "has_folder", "expected"), [
    (WAITS, OLD, False, True, None),
    (TAKEN, OLD, False, True, None),
    (TAKEN._replace(newest=NEW), OLD, False, True, None),
    (TAKEN._replace(newest=NEW), NEW, False, True, "saved"),
    (WAITS._replace(newest=NEW), NEW, False, True, "saved"),
    (TAKEN._replace(newest=NEW, living=None), NEW, False, True, "saved"),
    (WAITS._replace(heard=4), OLD, True, True, "late"),
    (WAITS._replace(heard=0), OLD, True, True, "unheard"),
    (TAKEN, OLD, True, True, "late"),
    (WAITS, OLD, True, True, "unheard"),
    (TAKEN._replace(living=3), OLD, False, True, "ended"),
    (WAITS._replace(newest=None), None, False, False, None),
    (TAKEN._replace(newest=None), None, False, False, "taken"),
    (WAITS._replace(newest=None, heard=1), None, False, False, "taken"),
    (WAITS._replace(newest=None), OLD, False, True, None),
], ids=["nobody yet", "taken", "a new one was seen once", "it is there still", "saved because it was due",
        "its last save before its end", "by signal, and late", "by signal, and nobody handles it", "taken, and late",
        "nobody", "another attempt runs", "no folder, nobody yet", "no folder, taken", "no folder, by signal",
        "the folder does not answer"])
def test_a_look_tells_saved_only_of_a_new_checkpoint_that_two_looks_agree_on(
    seen: Seen, confirmed: Newest | None, is_late: bool, has_folder: bool, expected: str | None
) -> None:
    assert judge(OLD, 2, seen, confirmed, is_late=is_late, has_folder=has_folder) == expected


def test_the_first_checkpoint_of_a_run_is_new() -> None:
    assert judge(None, 2, TAKEN._replace(newest=NEW), NEW, is_late=False, has_folder=True) == "saved"
