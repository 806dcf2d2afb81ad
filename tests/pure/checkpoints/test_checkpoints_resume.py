"""The words that are handed to the training command."""

from __future__ import annotations

import re

import pytest

from safelaunch.checkpoints.model import Checkpoint
from safelaunch.checkpoints.resume import is_usable, resume_args
from tests.tables import each

AT_12 = Checkpoint("/data/my runs/step_12.pt", 12, "torch")


@each(
    ("template", "words"),
    [
        ("--load {path}", ("--load", "/data/my runs/step_12.pt")),
        ("--load={path} --at {step}", ("--load=/data/my runs/step_12.pt", "--at", "12")),
        ("trainer.resume='{path}'", ("trainer.resume=/data/my runs/step_12.pt",)),
        ("--resume", ("--resume",)),
        ("", ()),
        ("--json '{\"a\": 1}'", ("--json", '{"a": 1}')),
    ],
)
def test_the_template_is_split_first_and_then_filled_in(template: str, words: tuple[str, ...]) -> None:
    assert resume_args(template, AT_12) == words


def test_without_a_checkpoint_there_are_no_words() -> None:
    assert resume_args("--load {path}", None) == ()


@each("path", ["/a/$(touch x)", "/a/'; rm -rf b", "/a/{step}", "/a/\n--evil"])
def test_a_path_stays_one_word_whatever_it_holds(path: str) -> None:
    assert resume_args("--load {path}", Checkpoint(path, 1, "torch")) == ("--load", path)


@each("checkpoint", [AT_12, None])
@each(
    ("template", "says"), [("--load {file}", "{file} is unknown"), ("--load '{path}", "No closing quotation")]
)
def test_a_template_that_means_nothing_is_refused_even_before_there_is_a_checkpoint(
    template: str, says: str, checkpoint: Checkpoint | None
) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        resume_args(template, checkpoint)


def test_a_step_that_nobody_knows_cannot_be_filled_in() -> None:
    with pytest.raises(ValueError, match="tells no step"):
        resume_args("--step {step}", Checkpoint("last.pt", None, "torch"))


@each(
    ("template", "step", "usable"),
    [("--at {step}", None, False), ("--at {step}", 0, True), ("--load {path}", None, True)],
)
def test_a_checkpoint_without_a_step_serves_where_no_step_is_asked(
    template: str, step: int | None, usable: bool
) -> None:
    assert is_usable(template, step) is usable
    if usable:
        assert resume_args(template, Checkpoint("last.pt", step, "torch"))
