"""A run that an earlier commit of safelaunch submitted and supervises goes on under this one."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import FLAGS, check_completes, crash
from tests.runs import ROOT, Installation, Submitter

NEW_ONLY = "lib/safelaunch/supervisor/ends/takeover.py"   # of the package that a node's supervisor runs
OLD = ROOT / "tests" / "fixtures" / "commit_4e50d35" / "package.tar.xz"


@pytest.fixture
def installation(installation: Installation) -> Iterator[Installation]:
    """An installation that holds the old package, until `upgrade` puts this commit's in its place."""
    root = Path(tempfile.mkdtemp(prefix="safelaunch-old-"))
    root.chmod(0o755)
    with tarfile.open(OLD) as packed:
        packed.extractall(root)
    (root / "tests").mkdir()
    shutil.copytree(ROOT / "tests" / "trainers", root / "tests" / "trainers")
    yield Installation(root, installation.python)
    shutil.rmtree(root)


def upgrade(installed: Installation) -> None:
    """As `pip install --upgrade` does: other files in the same folder, under the feet of whatever runs."""
    package = installed.root / "src" / "safelaunch"
    package.rename(package.with_name("before"))
    shutil.copytree(ROOT / "src" / "safelaunch", package, ignore=shutil.ignore_patterns("__pycache__"))


def test_a_run_of_the_old_supervisor_is_taken_over_by_the_new_one_in_the_next_job(
    sandbox: Sandbox, submit: Submitter, installation: Installation,
) -> None:
    drill = submit(sandbox)(FLAGS)
    assert "from safelaunch.loop import main" in (drill.run_dir / "job.sbatch").read_text()
    drill.wait_event("submitted", 2)
    drill.wait_step(25)
    first = drill.state().attempts[0]
    assert not drill.local_dirs_files(NEW_ONLY)

    upgrade(installation)
    crash(sandbox, first.nodes[1])
    second = drill.wait_event("attempt_started", 2, timeout_s=90)

    assert second.data["job"] != first.job and first.nodes[1] not in second.data["nodes"], drill.story()
    new = {path.parents[NEW_ONLY.count("/")].name.rpartition("-")[2] for path in drill.local_dirs_files(NEW_ONLY)}
    assert second.host in new, "its standby may be there by now, too"
    assert second.data["resume_step"] >= 20, drill.story()
    check_completes(drill)
