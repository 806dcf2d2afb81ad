"""What the run folder's own operations make of a filesystem as NFS clients show it (tests/sharedfs.py)."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from safelaunch.run.io.journal import Direct
from safelaunch.run.io.shared import SharedFolder
from tests.sandboxes import wait_until
from tests.sharedfs import Node, SharedFs

pytestmark = pytest.mark.timed   # clients and a server of their own take turns within seconds

HOUR_S = 3600.0   # no test takes so long, however long the machine stands still
DEADLINE_S = 60.0
SEE = "__import__('safelaunch.node.fresh', fromlist=['see']).see"


@pytest.fixture
def folder(shared_fs: SharedFs) -> Path:
    run = shared_fs.path / "run"
    for name in ("journal", "claims", "control"):
        (run / name).mkdir(parents=True)
    return run


def test_new_file_is_seen_late_on_another_node_and_at_once_by_one_that_looks_afresh(
    shared_fs: SharedFs, folder: Path, nodes: list[Node]
) -> None:
    shared_fs.set(late_s=HOUR_S)
    writer, sleeper, looker = nodes
    for node in (sleeper, looker):
        assert node.value(f"os.listdir('{folder}/control')") == []
    writer.value(f"Path('{folder}/control/kill').touch()")

    assert sleeper.value(f"os.path.exists('{folder}/control/kill')") is False
    assert looker.value(f"[{SEE}('{folder}/control'), os.path.exists('{folder}/control/kill')]") == [None, True]
    shared_fs.clear()
    assert sleeper.value(f"os.path.exists('{folder}/control/kill')") is True


def test_replaced_pulse_is_seen_late_on_another_node_and_at_once_by_one_that_looks_afresh(
    shared_fs: SharedFs, folder: Path, nodes: list[Node]
) -> None:
    writer, sleeper, looker = nodes
    put = "(Path('{0}/p.draft').write_text('{1}'), os.replace('{0}/p.draft', '{0}/pulse.json'))"
    writer.value(put.format(folder, 1))
    shared_fs.set(late_s=HOUR_S)
    for node in (sleeper, looker):
        assert node.value(f"Path('{folder}/pulse.json').read_text()") == "1"
    writer.value(put.format(folder, 2))

    assert sleeper.value(f"Path('{folder}/pulse.json').read_text()") == "1"
    assert looker.value(f"[{SEE}('{folder}'), Path('{folder}/pulse.json').read_text()]") == [None, "2"]


def test_looking_afresh_leaves_nothing_behind_and_is_no_error_where_nothing_can_be_written(
    shared_fs: SharedFs, folder: Path, nodes: list[Node]
) -> None:
    assert nodes[0].value(f"{SEE}('{folder}', '{folder}/claims', '{folder}/missing')") is None
    shared_fs.set(errors=[{"calls": ["create"], "errno": "EROFS"}])
    assert nodes[0].value(f"{SEE}('{folder}')") is None
    shared_fs.clear()
    assert sorted(path.name for path in folder.rglob("*")) == ["claims", "control", "journal"]


@pytest.mark.parametrize("through", ["the leader's folder", "a verb"])
def test_claim_whose_link_succeeded_and_says_that_it_exists_is_won(
    shared_fs: SharedFs, folder: Path, tmp_path: Path, through: str
) -> None:
    shared_fs.set(link_says_exists=True, attributes_late_s=30.0, late_s=30.0)
    if through == "a verb":
        assert Direct(folder).publish("claims/1", b"mine\n") is True
        assert Direct(folder).publish("claims/1", b"another's\n") is False
        return
    shared = SharedFolder(folder, tmp_path)
    assert shared.publish("claims/1", b"mine\n", DEADLINE_S) is True
    assert shared.publish("claims/1", b"another's\n", DEADLINE_S) is False
    shared.close()


def test_of_claims_on_many_nodes_at_once_exactly_one_is_won(
    shared_fs: SharedFs, folder: Path, nodes: list[Node]
) -> None:
    shared_fs.set(late_s=60.0, attributes_late_s=60.0, link_says_exists=True)
    for number in range(1, 6):
        for index, node in enumerate(nodes):
            node.send("from safelaunch.run.io.journal import Direct\nfrom pathlib import Path\n"
                      f"print(json.dumps(Direct(Path('{folder}')).publish('claims/{number}', b'{index}')))")
        assert sorted(node.answer() for node in nodes) == [False, False, True]


def polled(shared: SharedFolder) -> SharedFolder:
    """It has read what its courier said."""
    shared.poll(time.monotonic())
    return shared


@pytest.mark.parametrize("call", ["fsync", "write", "create"])
@pytest.mark.parametrize("number", ["ENOSPC", "EDQUOT", "EIO", "ESTALE"])
def test_refused_lines_are_kept_and_each_stands_there_once_when_the_folder_takes_them_again(
    shared_fs: SharedFs, folder: Path, tmp_path: Path, call: str, number: str
) -> None:
    shared = SharedFolder(folder, tmp_path)
    name = "journal/1.jsonl"
    if call != "create":
        assert shared.append(name, b"first\n", DEADLINE_S)
    shared_fs.set(errors=[{"calls": [call], "errno": number, "match": "*.jsonl"}])
    assert not shared.append(name, b"second\n", deadline_s=0.3)
    assert not shared.append(name, b"third\n", deadline_s=0.1)
    wait_until(lambda: bool(polled(shared).trouble), DEADLINE_S, "the trouble is not told")
    shared_fs.clear()

    shared.append(name, b"fourth\n")   # a folder that has been frozen for two seconds is not waited for
    wait_until(lambda: polled(shared).is_delivered, DEADLINE_S, "not all is delivered")
    lines = (folder / name).read_text().split()
    assert lines == [*(["first"] if call != "create" else []), "second", "third", "fourth"]
    shared.close()


def test_server_that_is_away_for_a_while_costs_no_line_and_no_wait(
    shared_fs: SharedFs, folder: Path, tmp_path: Path
) -> None:
    shared = SharedFolder(folder, tmp_path)
    assert shared.append("journal/1.jsonl", b"0\n", DEADLINE_S)
    shared_fs.set(away=True)
    begun_s = time.monotonic()
    for number in range(1, 200):
        shared.append("journal/1.jsonl", b"%d\n" % number)
    assert time.monotonic() - begun_s < 60.0, "one deadline for the whole freeze, not one for each line"
    assert shared.ask(lambda: 1 if (folder / "claims").exists() else 0, 0.5).late
    threading.Timer(1.0, shared_fs.clear).start()

    shared.append("journal/1.jsonl", b"200\n")
    wait_until(lambda: polled(shared).is_delivered, DEADLINE_S, "not all is delivered")
    assert (folder / "journal/1.jsonl").read_text().split() == [str(number) for number in range(201)]
    shared.close()


def test_root_who_is_nobody_on_the_server_cannot_read_and_the_owner_can(shared_fs: SharedFs) -> None:
    owner = Node(uid=12345)
    try:
        run = shared_fs.path / "run"
        owner.value(f"os.mkdir('{run}', 0o750)")
        owner.value(f"Path('{run}/run.json').write_text('x')")
        shared_fs.set(squash=True)
        assert owner.value(f"Path('{run}/run.json').read_text()") == "x"
        with pytest.raises(PermissionError):
            list(run.iterdir())
    finally:
        owner.close()


def test_of_a_users_groups_the_server_takes_sixteen(shared_fs: SharedFs) -> None:
    team = shared_fs.path / "team"
    team.mkdir()
    team.chmod(0o770)
    os.chown(team, 0, 3020)
    mate = Node(uid=12345, groups=list(range(3001, 3021)))
    try:
        assert mate.value(f"Path('{team}/x').write_text('1')") == 1
        shared_fs.set(cut_groups=True)
        assert mate.value(f"Path('{team}/y').write_text('1')") == "EACCES"
    finally:
        mate.close()


def test_times_of_files_are_the_servers(shared_fs: SharedFs, folder: Path) -> None:
    shared_fs.set(clock_s=-300.0)
    before_t = time.time()
    (folder / "control" / "kill").touch()
    assert before_t - 0.1 <= (folder / "control" / "kill").stat().st_mtime + 300.0 <= time.time() + 0.1
