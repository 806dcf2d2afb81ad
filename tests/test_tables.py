"""A table as one test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tables import each


@each("number", [1, 2, 3])
def test_every_row_is_tried_with_the_fixtures_that_the_test_names(tmp_path: Path, number: int) -> None:
    (tmp_path / "seen").write_text(str(number))
    assert number in (1, 2, 3) and tmp_path.is_dir()


def test_all_rows_that_fail_are_named_with_what_is_wrong_with_each() -> None:
    @each(("number", "name"), [(1, "one"), (2, "two"), (3, "three")], called=lambda row: str(row[1]))
    def fails(number: int, name: str) -> None:
        assert number == 2, f"{name} is not two"

    with pytest.raises(pytest.fail.Exception) as failed:
        fails()
    assert str(failed.value).splitlines()[0] == "2 of 3 rows:"
    assert "one: AssertionError: one is not two" in str(failed.value) and "three:" in str(failed.value)


def test_an_empty_table_fails() -> None:
    @each("number", [])
    def passes(number: int) -> None:
        pass

    with pytest.raises(AssertionError):
        passes()


def test_rows_have_the_names_that_they_are_given_and_tables_can_be_crossed() -> None:
    @each("left", [1, 2], ids=["first", "second"])
    @each(("right", "both"), [(1, "a"), (3, "b")], ids=str)
    def fails(left: int, right: int, both: str) -> None:
        assert left != right

    with pytest.raises(pytest.fail.Exception) as failed:
        fails()
    said = str(failed.value).splitlines()
    assert said[:2] == ["1 of 2 rows:", "first: Failed: 1 of 2 rows:"] and said[2].startswith("1-a: AssertionError")
