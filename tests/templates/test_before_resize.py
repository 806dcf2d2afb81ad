"""before_resize in the job script: where it runs, what it is told, and when its output counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pure.script.test_script import plan_of
from tests.templates.test_launcher_calls import attempt

YAML = ("name: here\ncluster: local\nrun_dir: /nowhere/here\nslurm: {{nodes: 4, ntasks_per_node: 2}}\n"
        "command: echo trained ${{RESUME_ARGS}}\nsetup: TOOL=tool\nlaunch: {{with: srun}}\nmin_nodes: 2\n"
        "resume: {{dir: ckpt, args: x}}\nbefore_resize: |\n  {hook}\n")
TOLD = "echo $TOOL $SLURM_NTASKS $SLURM_NNODES $SAFELAUNCH_OLD_NODES-$SAFELAUNCH_NEW_NODES"
WRITES = 'mkdir "$SAFELAUNCH_RESIZE_OUTPUT"; echo 1 >"$SAFELAUNCH_RESIZE_OUTPUT/part"'


def run(folder: Path, hook: str) -> tuple[str, str]:
    """What the script prints, and the exit code that it keeps."""
    code = folder / "code"
    said = attempt(folder, plan_of(YAML.format(hook=hook)), "srun", "", SAFELAUNCH_EXIT_FILE=str(code),
                   SAFELAUNCH_NODES="1", SAFELAUNCH_NODELIST="local0", SAFELAUNCH_OLD_NODES="4",
                   SAFELAUNCH_NEW_NODES="2", SAFELAUNCH_RESIZE_OUTPUT=str(folder / "ckpt.resized" / "1a2b3c4d-0002"))
    return said, code.read_text().strip()


def test_it_runs_once_on_one_node_with_setup_and_makes_its_own_output(tmp_path: Path) -> None:
    said, code = run(tmp_path, f"{TOLD}\n  {WRITES}; exit 0")
    assert (said, code) == ("[local0:0]:tool 1 1 4-2\n", "0")
    assert (tmp_path / "ckpt.resized" / "1a2b3c4d-0002" / "part").read_text() == "1\n"


@pytest.mark.parametrize(("hook", "expected", "word"), [
    (f"{WRITES}; exit 3", "3", ""),
    (f"{WRITES}; kill -9 $BASHPID", "137", ""),
    ("true", "65", "before_resize has written nothing to"),
    ('mkdir "$SAFELAUNCH_RESIZE_OUTPUT"', "65", "before_resize has written nothing to"),
    ('touch "$SAFELAUNCH_RESIZE_OUTPUT"', "65", "before_resize has written nothing to"),
    ("if true; then", "2", "syntax error"),
    ('echo 1 >part; ln -s "$PWD/part" "$SAFELAUNCH_RESIZE_OUTPUT"', "0", ""),
], ids=["an exit code", "a signal", "nothing", "an empty folder", "an empty file", "no bash", "a link"])
def test_only_an_end_with_0_and_an_output_count(tmp_path: Path, hook: str, expected: str, word: str) -> None:
    said, code = run(tmp_path, hook)
    assert code == expected
    assert word in said and "trained" not in said
