"""A node for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.checks.nodes import MadeNode


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MadeNode]:
    made = MadeNode(tmp_path, monkeypatch)
    with made.stack:
        yield made
