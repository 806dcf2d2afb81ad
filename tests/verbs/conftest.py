"""No test here is about how long a person or a child waits, but those that set it themselves."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _waits(no_deadlines: None) -> None:
    """See tests/deadlines.py."""
