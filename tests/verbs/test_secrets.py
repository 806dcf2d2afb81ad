"""Values of `env` stand in files that only the run's owner can read, also where a group reads the run."""

from __future__ import annotations

import grp
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from safelaunch.cli import run
from safelaunch.run.io import local
from tests.io.nodehealth.test_ledger import BOB, MALLORY, needs_root
from tests.users import open_paths, read_all

MARK, OLD_MARK, TOKEN = "marker-of-this-test", "marker-of-last-week", "hf_7aZk3Lm9Qw2Er5Ty8Ui1Op4As6Df"
TEXT = f"""\
name: bloom
cluster: local
run_dir: runs/bloom
setup: export HF_TOKEN={TOKEN}
command: python train.py --hub-token {TOKEN}
env: {{PLAIN: {MARK}}}
"""


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder, which everybody may pass: a git repository whose last commit had another value."""
    folder = Path(tempfile.mkdtemp(prefix="safelaunch-test-"))
    folder.chmod(0o755)
    (folder / "site.yaml").touch()
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(folder / "home"))
    (folder / "home").mkdir(mode=0o700)
    monkeypatch.setenv("SAFELAUNCH_SITE_CONFIG", str(folder / "site.yaml"))
    monkeypatch.setattr(local, "submit", lambda *_: "4711")
    monkeypatch.setattr("safelaunch.verbs.submit.submitting.GIT_BEFORE_S", 120.0)
    work = folder / "work"
    work.mkdir()
    (work / "train.yaml").write_text(TEXT.replace(MARK, OLD_MARK))
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=work, check=True)
    (work / "train.yaml").write_text(TEXT)
    (work / "train.yaml").chmod(0o600)
    monkeypatch.chdir(work)
    yield work
    shutil.rmtree(folder)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def test_run_json_names_the_variables_and_job_sbatch_holds_their_values(project: Path) -> None:
    assert run(["submit", "train.yaml"]) == 0
    run_dir = project / "runs" / "bloom"
    meta = read_json(run_dir / "run.json")
    assert meta["config"]["env"] == {"PLAIN": "***"}
    assert TOKEN not in json.dumps(meta["config"])
    assert meta["config"]["command"] == "python train.py --hub-token hf_***"
    assert f"'PLAIN={MARK}'" in (run_dir / "job.sbatch").read_text()
    assert OLD_MARK in meta["git"]["diff"], "the diff stands in a file that nobody else can read"
    assert not (run_dir / "git.json").exists()
    assert open_paths(run_dir.parent) == []


@needs_root
def test_a_member_of_the_group_reads_the_run_and_no_value_of_env(project: Path) -> None:
    team = next(entry for entry in grp.getgrall() if entry.gr_gid != os.getegid())
    assert run(["submit", "train.yaml", f"kill_switch.group={team.gr_name}"]) == 0
    run_dir = project / "runs" / "bloom"
    assert read_all(run_dir, MALLORY, MALLORY) == {}
    seen = read_all(run_dir, BOB, team.gr_gid)
    assert {"run.json", "claims/1"} < set(seen) and not {"job.sbatch", "submit.env", "git.json"} & set(seen)
    assert [(name, text) for name, content in seen.items() for text in (MARK, OLD_MARK, TOKEN)
            if text.encode() in content] == []
    assert OLD_MARK in read_json(run_dir / "git.json")["diff"] and read_json(run_dir / "run.json")["git"] == "git.json"
    assert open_paths(run_dir, 0o027) == ["control 3770"]
