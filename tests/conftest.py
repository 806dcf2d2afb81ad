"""Registers the fixture files, so that every test can ask for what it needs by name."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent
pytest_plugins = [f"tests.{name}" for name in ("sandboxes", "frozen") if (_HERE / f"{name}.py").exists()]
