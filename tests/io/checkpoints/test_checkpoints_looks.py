"""How often a search looks at a file: on a parallel filesystem each look is a message."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.checkpoints import LAYOUTS, counted

from safelaunch.checkpoints.io import checkpoints

FILES = 200


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_file_of_a_large_checkpoint_is_looked_at_three_times_at_most(tmp_path: Path, layout: str) -> None:
    LAYOUTS[layout](tmp_path / "ckpt", FILES)
    with counted() as looks:
        (judged,) = checkpoints.survey(str(tmp_path / "ckpt"), "auto")
    assert judged.reason is None
    assert looks[0] <= 3 * FILES
