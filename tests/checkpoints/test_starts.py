"""Every layout and every row of the matrix, and a training that starts where it was told to, or lower."""

from __future__ import annotations

from dataclasses import replace

from safelaunch.checkpoints.model import FoundCheckpoints
from tests.checkpoints.real import LAYOUTS, files
from tests.checkpoints.test_real import MATRIX, found_in, with_damage
from tests.pure.checkpoints.checkpoint_files import torch_file
from tests.pure.trainlog.test_lostprogress import FIRST, SECOND, lines, verdict
from tests.tables import each

SCALE = 100   # the archive's checkpoints are of steps 2 and 4: too few for a log to count below them
WHOLE = {layout: found_in(files(layout)) for layout in LAYOUTS}
DAMAGED = {f"{layout}: {name.rpartition('/')[2]} {damage}": found_in(with_damage(layout, name, damage))
           for layout, name, damage, _ in MATRIX}
# What the log counts from → what is made of it, where the newest is whole (400), and where only the older one is (200).
STARTS: dict[int, tuple[str, str]] = {
    1: ("stop", "stop"),       # nothing was loaded
    21: ("stop", "stop"),      # far older than all there are
    181: ("stop", "warn"),     # below all, not half as far as the newest; a few steps before the only one
    201: ("warn", ""),         # the older one
    399: ("", ""),             # a step or two are made again
    401: ("", ""),             # the newest, also where it is not whole and the training loads it all the same
}


def made_of(found: FoundCheckpoints, start: int) -> str:
    """stop | warn | "": what is made of an attempt that was to go on from what was found, and counts from `start`."""
    whole = [one.step for one in (found.best, *found.older) if one is not None and one.step is not None]
    second = replace(SECOND, resume_step=whole[0] * SCALE, whole_steps=tuple(step * SCALE for step in whole))
    first = replace(FIRST, step=420, checkpoint_step=whole[0] * SCALE)
    return verdict(*(lines(start + more) for more in range(12)), second=second, earlier=[first])


def test_a_start_below_a_checkpoint_whose_name_tells_no_step_is_a_warning() -> None:
    found = found_in({"last.pt": torch_file()})
    assert found.best is not None and (found.best.path, found.best.step) == ("last.pt", None)
    second = replace(SECOND, resume_step=None, resume_path=found.best.path, whole_steps=())
    made = {start: verdict(*(lines(start + more) for more in range(12)), second=second) for start in STARTS}
    assert made == {start: "warn" if start == 1 else "" for start in STARTS}, "only a start from nothing can be told"


@each("found", WHOLE.values(), ids=WHOLE)
def test_a_start_below_the_newest_checkpoint_of_every_layout_is_told(found: FoundCheckpoints) -> None:
    assert {start: made_of(found, start) for start in STARTS} == {start: said for start, (said, _) in STARTS.items()}


@each("found", DAMAGED.values(), ids=DAMAGED)
def test_a_start_below_the_older_one_is_told_where_the_newest_is_damaged(found: FoundCheckpoints) -> None:
    assert {start: made_of(found, start) for start in STARTS} == {start: said for start, (_, said) in STARTS.items()}
