"""Registers the fixture files, so that every test can ask for what it needs by name."""

from __future__ import annotations

pytest_plugins = ["tests.sandboxes", "tests.frozen", "tests.runs", "tests.localruns"]
