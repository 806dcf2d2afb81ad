"""Whether a script looks at how its sruns end."""

from __future__ import annotations

from safelaunch.core.config.scriptcodes import looks_at_codes
from tests.tables import each

HIDES = (
    "srun python train.py\necho done",
    "cd $DIR || exit 1\nsrun python train.py 2>&1 | tee log",
    "set -e\nsrun python train.py | tee log",
    "train() {\n  srun python train.py\n}\ntrain\ndate",
    "exec > >(tee log)\ntime srun bash -c 'a && b || c'\nrsync -a out/ $HOME/",
    "source env.sh && conda activate x\nhead=$(srun -n1 hostname)\nsrun \\\n  python x.py\necho $head",
)
LOOKS = (
    "srun python train.py\ncode=$?\nexit 0",
    "srun a | tee log\nexit ${PIPESTATUS[0]}",
    "srun python eval.py || true",
    "if ! srun python train.py; then echo failed; fi",
    "for i in 1 2 3; do\n  srun a && break\ndone",
    "while ! srun a; do sleep 1; done",
    "srun a &\nsrun b &\nwait",
    "$SRUN python a || echo late",
    "train() {\n  srun a\n}\ntrain || echo late",
    "trap 'exit 3' ERR\nsrun a\necho done",
    "srun 'a",
)


@each("text", [f"#!/bin/bash -l\n{text}\n" for text in HIDES] + [
    f"#!{shell}\n#SBATCH -N 2\nsrun a\n" for shell in (
        "/bin/bash", "/usr/bin/env bash", "/usr/bin/env -S bash -el", " /bin/sh", "/usr/bin/tcsh -f")])
def test_of_a_script_that_goes_on_behind_its_srun_it_is_known_that_it_does_not(text: str) -> None:
    assert not looks_at_codes(text)


@each("text", [f"#!/bin/bash\n{text}\n" for text in LOOKS] + ["#!/usr/bin/env python3\nsubprocess.call(['srun'])\n"])
def test_of_any_other_script_it_is_taken_that_it_may(text: str) -> None:
    assert looks_at_codes(text)
