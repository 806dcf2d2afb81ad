"""What is said of a config fits a page."""

from __future__ import annotations

from safelaunch.config.notelines import MOST, note_lines


def test_what_stands_in_several_lines_is_said_once() -> None:
    notes = ["job.slurm:3: leave it out", "other", "job.slurm:7: leave it out", "job.slurm:3: leave it out"]
    assert note_lines(notes, "job.slurm") == ["job.slurm:3: leave it out (also in line 7)", "other"]
    many = [f"job.slurm:{line}: x" for line in range(1, 9)]
    assert note_lines(many, "job.slurm") == ["job.slurm:1: x (also in lines 2, 3, 4 and 4 more)"]


def test_of_too_many_the_first_and_the_last_are_shown_and_the_others_counted() -> None:
    lines = note_lines([f"note {number}" for number in range(20)], "job.slurm")
    more = "and 12 more: safelaunch check job.slurm --json"
    assert lines == [*(f"note {number}" for number in range(MOST - 1)), more, "note 19"]
    assert len(note_lines([f"note {number}" for number in range(MOST)], "job.slurm")) == MOST
