"""safelaunch init: a first train.yaml that is sound, and nothing lost or overwritten."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.cli import run
from safelaunch.config.resolve import ConfigLayer, resolve
from safelaunch.config.sbatchscript import draft_from_script
from safelaunch.config.starter import Draft, render_draft

JOB = """\
#!/bin/bash
#SBATCH --job-name=bloom-mini
#SBATCH -N 4 --gpus-per-node=a100:8   # both on one line
#SBATCH --ntasks-per-node=1
#SBATCH -t 20:00:00
#SBATCH --output=logs/%x-%j.out
#SBATCH --requeue
#SBATCH -A abc@h100
#SBATCH --comment="first try"
module load cuda/12.4
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)
export MASTER_PORT=29500
source "venv/bin/activate"

srun --label -n 4 -K1 torchrun --nnodes=$SLURM_NNODES --nproc_per_node 8 \\
    --rdzv_backend c10d --rdzv_endpoint "$MASTER_ADDR:$MASTER_PORT" \\
    train.py --data "$HOME/a b" --lr 1e-3
echo done
#SBATCH --qos=too-late
"""


@pytest.fixture(autouse=True)
def _an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("SAFELAUNCH_SITE_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)


def config_from(script: str) -> dict[str, Any]:
    draft = draft_from_script(script, "job.slurm")
    below = [ConfigLayer("file", draft.script, script)] if draft.script else []
    return resolve([*below, ConfigLayer("file", "train.yaml", render_draft(draft))], [], {}).config


def test_the_first_file_is_sound() -> None:
    assert run(["init"]) == 0
    assert run(["check", "train.yaml"]) == 0


def test_editors_find_the_schema_that_the_first_line_names() -> None:
    Path("jobs").mkdir()
    assert run(["init", "-o", "jobs/train.yaml"]) == 0
    first = Path("jobs/train.yaml").read_text().partition("\n")[0]
    named = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert named is not None
    assert json.loads(Path("jobs", named[1]).read_text())["properties"].keys() >= {"command", "slurm", "resume"}
    assert run(["init", "-o", "jobs/two.yaml"]) == 0   # one schema for both


def test_what_is_commented_out_in_the_first_file_is_sound_too() -> None:
    assert run(["init"]) == 0
    text = Path("train.yaml").read_text()
    body = text[text.index("# resume:") :]
    keys = [line.removeprefix("# ") for line in body.splitlines() if not line.startswith("# ") or line[2:3] in "rkp "]
    text = text[: text.index("# resume:")] + "\n".join(keys)
    got = resolve([ConfigLayer("file", "train.yaml", text)], [], {}).config
    assert got["resume"]["dir"] == "checkpoints"
    assert (got["kill_switch"]["group"], got["preserve_site"]["for"]) == ("ourteam", 7200)


@pytest.mark.parametrize(
    "script", ["", "srun python train.py --save ckpt\n", "srun ./a.out\n", "srun a\nsrun b\n", "sh run.sh | tee log\n"])
def test_a_file_made_from_a_script_still_passes_once_its_resume_is_uncommented(script: str) -> None:
    draft = draft_from_script(f"#!/bin/sh\n{script}", "job.slurm")
    text, below = render_draft(draft), ConfigLayer("file", "job.slurm", f"#!/bin/sh\n{script}")
    head, _, rest = text.partition("# resume:\n")
    keys, _, rest = rest.partition("\n\n")
    text = f"{head}resume:\n{keys.replace('#   ', '  ')}\n\n{rest}"
    layers = [*([below] if draft.script else []), ConfigLayer("file", "train.yaml", text)]
    assert resolve(layers, [], {}).config["resume"]["dir"] == ("ckpt" if "--save ckpt" in script else "checkpoints")


def test_an_existing_file_is_never_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.yaml").write_text("mine")
    assert run(["init"]) == 2
    assert Path("train.yaml").read_text() == "mine"
    assert "train.yaml exists already" in capsys.readouterr().err


def test_a_link_to_nowhere_is_not_followed() -> None:
    Path("train.yaml").symlink_to("elsewhere")
    assert run(["init"]) == 2
    assert not Path("elsewhere").exists()


def test_a_script_becomes_a_sound_file_and_what_was_left_out_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    Path("job.slurm").write_text(JOB)
    assert run(["init", "--from", "job.slurm", "-o", "new.yaml"]) == 0
    said = capsys.readouterr().err
    for word in ("--requeue", "MASTER_ADDR", "--rdzv_backend", "--label -K1", "job.slurm:15:"):
        assert word in said
        assert word in Path("new.yaml").read_text()
    assert run(["check", "new.yaml"]) == 0


def test_a_script_of_srun_and_torchrun_keeps_what_is_the_users() -> None:
    got = config_from(JOB)
    assert got["name"] == "bloom-mini"
    assert got["command"] == 'python -u train.py --data "$HOME/a b" --lr 1e-3 ${RESUME_ARGS}'
    assert got["setup"] == 'module load cuda/12.4\nsource "venv/bin/activate"\n'
    assert (got["launch"]["with"], got["launch"]["nproc_per_node"]) == ("torchrun", 8)
    assert got["slurm"] == {
        "nodes": 4, "gpus-per-node": "a100:8", "ntasks-per-node": 1, "time": "20:00:00", "account": "abc@h100",
        "comment": "first try",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "launch", "command"),
    [
        ("srun python train.py", "srun", "python train.py ${RESUME_ARGS}"),
        ("srun -n2 --cpu-bind=none python a.py | tee log", "srun", "python a.py ${RESUME_ARGS}"),
        ("srun torchrun --nproc_per_node=2 --no-python ./a.sh b", "torchrun", "./a.sh b"),
        ("srun python -m torch.distributed.run --nnodes 2 --nproc-per-node=1 a.py", "torchrun",
         "python -u a.py ${RESUME_ARGS}"),
        ("exec srun ./a.out", "srun", "./a.out"),
        ("python train.py", "script", None),
        ("srun a\nsrun b", "script", None),
        ("for i in 1 2; do\n  srun a $i\ndone", "script", None),
        ("srun a && echo b", "script", None),
        ("", "script", None),
    ],
)
def test_the_training_is_found_where_it_is_plain_and_else_the_script_is_kept(
    body: str, launch: str, command: str | None
) -> None:
    script = f"#!/bin/bash\n#SBATCH --nodes=2\n{body}\n"
    got = config_from(script)
    assert got["launch"]["with"] == launch
    assert got["command"] == (script if command is None else command)


@pytest.mark.parametrize(
    ("directives", "nodes"),
    [
        ("", 1),
        ("--nodes=3", 3),
        ("-N 2-4", 2),
        ("--ntasks=16 --ntasks-per-node=8", 2),
        ("--ntasks=17 --ntasks-per-node=8", 3),
        ("--ntasks=16", 1),
    ],
)
def test_the_nodes_become_one_number(directives: str, nodes: int) -> None:
    assert config_from(f"#!/bin/sh\n#SBATCH {directives}\nsrun x\n")["slurm"]["nodes"] == nodes


@pytest.mark.parametrize(
    ("shebang", "is_login", "setup"),
    [
        ("#!/bin/bash -l", True, "module load cuda\n"),
        ("#!/bin/bash --login", True, "module load cuda\n"),
        ("#!/usr/bin/env -S bash -el", True, "set -e\nmodule load cuda\n"),
        ("#! /bin/bash -eu -x", False, "set -eux\nmodule load cuda\n"),
        ("#!/usr/bin/bash", False, "module load cuda"),
    ],
)
def test_the_shell_is_asked_for_as_the_script_did(shebang: str, is_login: bool, setup: str) -> None:
    got = config_from(f"{shebang}\n#SBATCH --nodes=2\nmodule load cuda\nsrun python train.py\n")
    assert (got["launch"]["login_shell"], got["setup"].strip()) == (is_login, setup.strip())
    got = config_from(f"{shebang}\npython train.py --once\n")
    assert got["launch"]["login_shell"] == is_login


@pytest.mark.parametrize(("shebang", "word"), [("#!/bin/zsh", "zsh"), ("#!/bin/bash -O extglob", "-O")])
def test_a_script_whose_shell_cannot_be_kept_runs_as_it_is(shebang: str, word: str) -> None:
    draft = draft_from_script(f"{shebang}\nsrun x\n", "job.slurm")
    assert draft.script and any(word in note for note in draft.notes)


def test_a_train_yaml_around_a_script_finds_it_from_its_own_folder(capsys: pytest.CaptureFixture[str]) -> None:
    Path("jobs").mkdir()
    Path("runs").mkdir()
    Path("jobs/two.slurm").write_text("#!/bin/bash\n#SBATCH --nodes=2 -J two\nsrun a\nsrun b\n")
    assert run(["init", "--from", "jobs/two.slurm", "-o", "runs/new.yaml"]) == 0
    assert "script: ../jobs/two.slurm" in Path("runs/new.yaml").read_text()
    assert "jobs/two.slurm:4: not converted" in capsys.readouterr().err
    assert run(["check", "runs/new.yaml", "spare_nodes=1"]) == 0
    assert "2 nodes, your script" in capsys.readouterr().out
    assert run(["script", "runs/new.yaml"]) == 0
    assert "#SBATCH --job-name=two." in capsys.readouterr().out


@pytest.mark.parametrize(("text", "said"), [
    ("script: nowhere.slurm\n", "nowhere.slurm cannot be read"),
    ("script: plain\n", "plain:1:1: does not begin with #!"),
    ("script: job\ncommand: python x\n", "command: script: is there, too"),
    ("script: job\nlaunch: {with: srun}\n", "launch.with: script: runs as it is"),
    ("script: job\nsetup: module load x\n", "setup: has no meaning"),
    ("script: [a]\n", "script: expected a path"),
    ("script: bad\n", "bad:2:1: array"),
])
def test_a_script_that_train_yaml_names_is_checked_with_it(text: str, said: str, capsys: pytest.CaptureFixture[str],
                                                          ) -> None:
    Path("job").write_text("#!/bin/bash\nsrun a\n")
    Path("bad").write_text("#!/bin/bash\n#SBATCH --array=3-1\nsrun a\n")
    Path("plain").write_text("srun a\n")
    Path("t.yaml").write_text(text)
    assert run(["check", "t.yaml"]) == 2
    assert said in capsys.readouterr().err


def test_a_script_that_cannot_be_read_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    Path("latin").write_bytes(b"caf\xe9")
    assert run(["init", "--from", "nowhere"]) == 2
    assert run(["init", "--from", "latin"]) == 2
    assert capsys.readouterr().err == (
        "safelaunch: nowhere cannot be read: No such file or directory\n"
        "latin:1:4: not UTF-8 text (byte 0xe9); save the file as UTF-8\n"
    )
    assert not Path("train.yaml").exists()


code = st.lists(st.text("a #:-|>'\"\t\\{}$é", max_size=12), min_size=1, max_size=5).map("\n".join)


@given(code, code)
def test_shell_code_comes_back_from_the_file_line_by_line(command: str, setup: str) -> None:
    text = render_draft(Draft("n", f"x {command}", setup))
    got = resolve([ConfigLayer("file", "t", text)], [], {}).config
    assert got["command"].strip("\n") == f"x {command}".strip("\n")
    assert got["setup"].strip("\n") == setup.strip("\n")
