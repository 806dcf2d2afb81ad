"""No message has a format that may print an exponent."""

from __future__ import annotations

import re

from tests.house.source import modules


def test_no_message_has_a_format_that_may_print_an_exponent() -> None:
    """1.4e+02 % stood in four places."""
    may = {"base/numbers.py", "safelaunch_progress.py", "verbs/report/monthpage.py", "why/show/verdicttext.py"}
    found = {module.path for module in modules() if re.search(r":,?\.[0-9]g\}", module.text)}
    assert found <= may
