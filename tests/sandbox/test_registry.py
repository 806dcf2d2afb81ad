"""What the sandboxes of a machine know of each other."""

from __future__ import annotations

import json
from pathlib import Path

from safelaunch.sandbox import registry


def test_a_sandbox_of_a_later_release_with_facts_unknown_here_is_read_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "box.json"
    known = {"name": "box", "dir": "/tmp/box", "port": 12000, "nodes": 4, "cpus": 8, "gpus": 8, "memory_mb": 2000}
    file.write_text(json.dumps({**known, "of_a_later_release": True}))
    assert registry.read(file) == registry.Entry(**known)   # type: ignore[arg-type]
