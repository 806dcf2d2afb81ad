"""torchrun and its Python on the PATH of ordinary users."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.runs import Installation

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
# As pip writes it, for an interpreter that may be mounted elsewhere for the users.
TORCHRUN = """\
#!{python}
import sys
from torch.distributed.run import main
sys.exit(main())
"""
PYTHON3 = """\
#!/bin/bash
exec {python} "$@"
"""


def make_torch_bin(folder: Path, installation: Installation) -> Path:
    """A new folder with `torchrun` and `python3` of the interpreter that runs the tests."""
    folder.mkdir()
    for name, text in (("torchrun", TORCHRUN), ("python3", PYTHON3)):
        (folder / name).write_text(text.format(python=installation.python))
        (folder / name).chmod(0o755)
    return folder
