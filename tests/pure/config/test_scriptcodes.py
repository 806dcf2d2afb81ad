"""Whether a script looks at how its sruns end."""

from __future__ import annotations

from safelaunch.config.shell.scriptcodes import hidden_codes, looks_at_codes
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


@each(("text", "said"), (
    ("srun python train.py\necho done", {2: "|| exit $?"}),
    ("python -u train.py 2>&1 | tee log", {2: "set -o pipefail"}),
    ("set -e\nsrun \\\n  a | tee log\necho done", {3: "set -o pipefail"}),
    ("A=1 srun a | tee log || echo failed", {2: "set -o pipefail"}),
    ("if x; then\n  torchrun a\nelse\n  module load y\n  time srun b\nfi\ndate", {3: "|| exit $?", 6: "|| exit $?"}),
    ("train() {\n  srun a\n}\ntrain\nexit 0", {3: "|| exit $?"}),
    ("srun prepare\nsrun train", {2: "|| exit $?"}),
    ("srun a; wait", {2: "|| exit $?"}),
    ("nohup srun a > log 2>&1\necho done", {2: "|| exit $?"}),
    *((text, {}) for text in (
        "srun a", "set -euo pipefail\nsrun a | tee log\necho done", "srun a | tee log\nexit ${PIPESTATUS[0]}",
        "srun a || exit $?\necho done", "srun bash -c 'a | tee log'", "srun a\ncode=$?\nexit $code", "srun a &\nwait",
        "train() {\n  srun a\n}\ntrain", "for x in 1 2; do\n  srun a $x\ndone", "python -c 'print(1)'\nsrun a",
        "if x; then\n  srun a\nelse\n  module load y\n  srun b\nfi", "set -o errexit\nsrun a\nsrun b",
        "case $1 in\na)\n  srun a ;;\n*)\n  cd x\n  srun b ;;\nesac", "srun a > log 2>&1", "srun 'a",
        "hosts=$(srun hostname)\nsrun a",
    )),
))
def test_an_exit_code_that_the_script_hides_is_named_with_its_line_and_what_to_do(
        text: str, said: dict[int, str]) -> None:
    hints = hidden_codes(f"#!/bin/bash -l\n{text}\n", "job.slurm")
    assert [hint.split(": ")[0] for hint in hints] == [f"job.slurm:{line}" for line in said]
    assert all(words in hint for words, hint in zip(said.values(), hints, strict=True))


@each("shell", ("/usr/bin/env python3", "/bin/bash -e", "/bin/tcsh"))
def test_of_other_programs_and_of_a_shell_that_ends_at_a_failure_no_hidden_code_is_said(shell: str) -> None:
    assert hidden_codes(f"#!{shell}\nsrun a\necho done\n", "job.slurm") == []
