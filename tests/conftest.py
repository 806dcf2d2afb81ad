"""Registers the fixture files, so that every test can ask for what it needs by name."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

pytest_plugins = ["tests.sandboxes", "tests.frozen", "tests.runs", "tests.localruns"]


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """No test may leave its umask behind: files of later ones would be closed to the sandboxes' users."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)
