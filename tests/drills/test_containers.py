"""Ranks in real containers, on a real Slurm: rootless Podman with a plain root folder (docs/containers.md)."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from safelaunch.sandbox.cluster import Sandbox
from tests.drills.proofs import long_only
from tests.runs import ALICE, Installation, Submitter, comm_of, environ_of, parent_of
from tests.sandboxes import make_workdir

ENGINE = '[engine]\nruntime="runc"\ncgroup_manager="cgroupfs"\nevents_logger="file"\n'
pytestmark = [long_only, pytest.mark.skipif(not (shutil.which("podman") and shutil.which("runc")),
                                            reason="needs podman and runc (Debian: podman runc uidmap)")]


@pytest.fixture
def runtime_dir() -> Iterator[Path]:
    """Short: Podman's clean-up refuses a run root of more than 50 characters, and then each end lasts 20 s."""
    folder = Path(tempfile.mkdtemp(prefix="sl-", dir="/tmp"))
    shutil.chown(folder, ALICE)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def image(sandbox: Sandbox) -> Iterator[Path]:
    """A root folder without programs of its own: /usr is mounted into it."""
    folder = make_workdir(sandbox) / "root"
    for name in ("usr", "etc", "proc", "sys", "dev", "tmp", "run"):
        (folder / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        (folder / name).symlink_to(f"usr/{name}")
    (folder.parent / "containers.conf").write_text(ENGINE)
    subprocess.run(["chown", "-R", f"{ALICE}:", folder.parent], check=True)
    yield folder


def test_ranks_in_containers_are_restarted_seen_and_stopped(
    submit: Submitter, sandbox: Sandbox, installation: Installation, image: Path, runtime_dir: Path
) -> None:
    home = str(image.parent)
    extra = (f'container: {{runtime: podman, image: {image}, mounts: ["/usr:/usr:ro", "{installation.root}"], '
             # Sandboxes lie below /dev/shm, with mounts that a user's own container cannot take along.
             'env: {MINE: "a b"}, extra: [--ipc=private]}\nrestart: {backoff: 0s}\n')
    drill = submit(sandbox)("--steps 100000 --step-time 0.05 --save-every 10 --handle-usr2", tasks=1, extra=extra,
                            env={"HOME": home, "XDG_RUNTIME_DIR": str(runtime_dir),
                                 "CONTAINERS_CONF": f"{home}/containers.conf"})
    drill.wait_step(15)
    ranks = drill.ranks()
    assert len(ranks) == 2, drill.story() + drill.log(1)
    assert all(comm_of(parent_of(pid)) == "conmon" and b"MINE=a b" in environ_of(pid) for pid in ranks)
    said = drill.as_user("stacks", str(drill.run_dir))
    assert "2 ranks" in said.stdout and "train_one_step" in said.stdout, said.stdout + said.stderr

    drill.kill(ranks[0])
    drill.wait_step(20, 2)
    drill.wait_ranks(2, 2)
    assert "]:step 11 " in drill.log(2) or drill.state().attempts[1].resume_step, drill.log(2)
    (drill.run_dir / "control" / "kill").touch()

    ended = drill.wait_end().ended
    assert ended is not None and ended.how == "stopped", drill.story()
    assert drill.log(2).count("]:stopped on request after step") == 2, drill.log(2)
    assert not drill.ranks()


def test_an_image_that_is_missing_is_named_by_the_verdict(
    submit: Submitter, sandbox: Sandbox, installation: Installation
) -> None:
    drill = submit(sandbox)("--steps 5", tasks=1, extra="container: {runtime: podman, image: /no/such/image}\n",
                            wait_started=False)
    ended = drill.wait_end().ended
    assert ended is not None and ended.how == "gave_up" and len(drill.state().attempts) == 1, drill.story()
    said = drill.as_user("why", str(drill.run_dir))
    assert "environment" in said.stdout and "the image /no/such/image is missing" in said.stdout, said.stdout
