"""What the sandboxes of a machine know of each other."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NoReturn

import pytest

from safelaunch.cli import run
from safelaunch.errors import SandboxError
from safelaunch.sandbox import conf, daemons, ports, registry, users
from safelaunch.sandbox.cluster import Sandbox


def test_a_sandbox_of_a_later_release_with_facts_unknown_here_is_read_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "box.json"
    known = {"name": "box", "dir": "/tmp/box", "port": 12000, "nodes": 4, "cpus": 8, "gpus": 8, "memory_mb": 2000}
    file.write_text(json.dumps({**known, "of_a_later_release": True}))
    assert registry.read(file) == registry.RegisteredSandbox(**known)   # type: ignore[arg-type]


@pytest.mark.skipif(os.geteuid() != 0, reason="gives folders away: needs root")
@pytest.mark.parametrize("whose", ["the registry", "a registry that others can write", "a sandbox"])
def test_what_another_user_has_laid_there_is_never_read(
    whose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root, box = tmp_path / "registry", tmp_path / "box"
    for folder in (root, box):
        folder.mkdir(mode=0o755)
    (box / registry.MARKER).touch()
    facts = {"name": "default", "dir": str(box), "port": 12000, "nodes": 4, "cpus": 8, "gpus": 8, "memory_mb": 2000}
    (root / "default.json").write_text(json.dumps(facts))
    monkeypatch.setattr(registry, "ROOT", root)
    assert [entry.name for entry in registry.entries()] == ["default"]
    if whose == "a registry that others can write":
        root.chmod(0o777)
    else:
        os.chown(box if whose == "a sandbox" else root, 60002, 60002)

    for verb in ("env", "down", "list"):
        assert run(["sandbox", verb]) == 2
        said = capsys.readouterr()
        assert "nothing in it is believed" in said.err and not said.out


@pytest.mark.skipif(os.geteuid() != 0, reason="gives folders away: needs root")
def test_no_sandbox_is_made_in_anothers_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "ROOT", tmp_path / "registry")
    (tmp_path / "box").mkdir()
    os.chown(tmp_path / "box", 60002, 60002)
    with pytest.raises(SandboxError, match="belongs to"):
        registry.claim(registry.RegisteredSandbox("box", str(tmp_path / "box"), 0, 1, 1, 0, 100))


@pytest.mark.skipif(os.geteuid() != 0, reason="gives folders away: needs root")
@pytest.mark.parametrize(("owner", "mode", "said"), [
    (60002, 0o755, "belongs to"), (0, 0o777, "others may write"), (0, 0o775, "others may write")])
def test_no_sandbox_is_made_where_another_user_could_put_another_folder_in_its_place(
    owner: int, mode: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root's `down` would remove that one."""
    monkeypatch.setattr(registry, "ROOT", tmp_path / "registry")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs").chmod(mode)
    os.chown(tmp_path / "theirs", owner, owner)
    with pytest.raises(SandboxError, match=said):
        registry.claim(registry.RegisteredSandbox("box", str(tmp_path / "theirs" / "box"), 0, 1, 1, 0, 100))
    assert not list((tmp_path / "theirs").iterdir())


def test_a_sandbox_behind_a_link_is_known_by_its_own_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever made the link could aim it at another folder before `down`, which also left a mount that it did not find.
    """
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    def claim(wanted: registry.RegisteredSandbox) -> NoReturn:
        raise SandboxError(wanted.dir)

    monkeypatch.setattr(registry, "claim", claim)
    monkeypatch.setattr(daemons, "check_able", lambda **_: None)
    monkeypatch.setattr(users, "ensure_users", lambda: None)
    monkeypatch.setattr(conf, "check_dir", lambda folder: None)   # of a length that pytest exceeds
    with pytest.raises(SandboxError) as refused:
        Sandbox.up(tmp_path / "link" / "box")
    assert refused.value.message == str(tmp_path / "real" / "box")


def free_of_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[range, ports.PortHold]:
    """The ports of a sandbox that a machine claims which sees no other sandbox's files, as a container does."""
    folder.mkdir(mode=0o755)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(registry, "ROOT", folder / "registry")
        entry, held = registry.claim(registry.RegisteredSandbox("box", str(folder / "box"), 0, 20, 1, 0, 100))
    return range(entry.port, entry.dbd_port + 1), held


@pytest.mark.skipif(os.geteuid() != 0, reason="sandboxes are root's")
def test_sandboxes_that_share_the_network_but_no_files_share_no_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one, held), (other, held_too) = (free_of_others(tmp_path / name, monkeypatch) for name in ("a", "b"))
    held.close()
    third, held_last = free_of_others(tmp_path / "c", monkeypatch)
    assert len(one) == 22 and not set(one) & set(other)
    assert not set(other) & set(third), "what one gives back is not the other's"
    held_too.close()
    held_last.close()


def test_a_sandbox_keeps_its_ports_while_nothing_listens_there(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for machine in sandbox.machines:
        sandbox.crash(machine)
    other, held = free_of_others(tmp_path / "other", monkeypatch)
    held.close()
    entry = registry.find(sandbox.name)
    assert not set(range(entry.port, entry.dbd_port + 1)) & set(other)
