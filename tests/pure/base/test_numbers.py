"""Numbers as a person writes them."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.base.numbers import count, days, figure, percent
from tests.tables import each


@each(("share", "text"), [
    (0.0, "0 %"), (0.0004, "under 0.1 %"), (0.001, "0.1 %"), (0.034, "3.4 %"), (0.12, "12 %"), (0.1234, "12.3 %"),
    (0.965, "96.5 %"), (0.99951, "99.9 %"), (0.9999999, "99.9 %"), (1.0, "100 %"), (1.4, "140 %"), (1.4337, "143 %"),
    (14.0, "1400 %"), (-0.05, "-5 %"),
])
def test_a_percentage_has_no_exponent_and_no_false_all_or_nothing(share: float, text: str) -> None:
    assert percent(share) == text


@each(("value", "digits", "text"), [
    (0.03985, 2, "0.04"), (0.5, 4, "0.5"), (12345.6, 3, "12346"), (7282.13, 6, "7282.13"), (1234567.0, 6, "1234567"),
    (99.96, 3, "100"), (0.0, 3, "0"), (1e-7, 3, "1e-07"), (float("nan"), 3, "nan"), (250.0, 2, "250"),
])
def test_a_figure_has_the_digits_that_count(value: float, digits: int, text: str) -> None:
    assert figure(value, digits) == text


@given(st.floats(1e-4, 1e15), st.integers(1, 8))
def test_no_figure_of_a_usual_size_has_an_exponent(value: float, digits: int) -> None:
    assert re.fullmatch(r"\d+(\.\d+)?", figure(value, digits)) and float(figure(value, digits)) >= 0


@each(("number", "text"), [(3.24, "3.24 d"), (0.5, "12 h"), (0.01, "14 min"), (1e-5, "under 1 min")])
def test_days_of_use_have_their_own_unit(number: float, text: str) -> None:
    assert days(number) == text


def test_one_is_no_plural() -> None:
    assert [count(number, "step") for number in (0, 1, 2)] == ["no step", "1 step", "2 steps"]
