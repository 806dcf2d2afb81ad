"""The run folder as submit makes it: who may read what, and that nothing half-made is left."""

from __future__ import annotations

import grp
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from safelaunch.errors import RunFolderError
from safelaunch.run import plan as plans
from safelaunch.run.io import journal, runfolder, runmaking, runpath
from safelaunch.run.io.runfolder import Run
from safelaunch.run.io.shared import SharedFolder
from safelaunch.verbs.common import controls
from safelaunch.verbs.submit import submitting
from tests.handmade import YAML, make_run
from tests.users import acting_as

WHOLE = {"job.sbatch", "submit.env", "run.json", "control", *runfolder.FOLDERS}   # what a new run's folder has


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A new folder that everybody may pass; pytest's tmp_path is closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="safelaunch-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def group() -> grp.struct_group:
    """A group of ours that is not the one that new files get anyway."""
    others = [gid for gid in (os.getgroups() if os.getuid() else [entry.gr_gid for entry in grp.getgrall()])
              if gid != os.getegid()]
    if not others:
        pytest.skip("needs root, or a second group of this user")
    return grp.getgrgid(others[0])


@pytest.fixture
def closed_umask() -> Iterator[None]:
    """What careful people have."""
    before = os.umask(0o077)
    yield
    os.umask(before)


def modes(run_dir: Path) -> dict[str, str]:
    """name → mode as octal digits, of all that is there."""
    return {str(path.relative_to(run_dir)): f"{stat.S_IMODE(path.stat().st_mode):o}"
            for path in (run_dir, *run_dir.rglob("*"))}


ALONE = {".": "700", "journal": "700", "attempts": "700", "claims": "700", "control": "700", "job.sbatch": "700",
         "submit.env": "600", "run.json": "600"}
SHARED = {**ALONE, ".": "2750", "journal": "2750", "attempts": "2750", "claims": "2750", "control": "3770",
          "run.json": "640"}


def test_without_a_group_the_folder_is_its_owners(open_folder: Path) -> None:
    run_dir = make_run(open_folder / "new" / "run").dir
    assert modes(run_dir.parent) == {".": "700", **{f"run/{name}".removesuffix("/."): mode
                                                    for name, mode in ALONE.items()}}


@pytest.mark.parametrize("mode", [0o2775, 0o777], ids=["a team's", "everybody's"])
def test_without_a_group_an_open_folder_that_is_already_there_is_closed(open_folder: Path, mode: int) -> None:
    (open_folder / "run").mkdir()
    (open_folder / "run").chmod(mode)
    assert modes(make_run(open_folder / "run").dir) == ALONE


@pytest.mark.parametrize("given", [0, 0o077], ids=["000", "077"])
def test_without_a_group_all_that_is_written_later_is_the_owners_whatever_the_umask(
    open_folder: Path, tmp_path: Path, given: int
) -> None:
    run = make_run(open_folder / "run").run
    os.umask(given)
    made = write_as_all_do(run, tmp_path)
    assert made == {f"journal/000000-login-{os.getpid()}.jsonl": "600", "attempts/0001": "700",
                    "attempts/0001/exit.json": "600", "journal/000001-n0-1.jsonl": "600", "claims/1": "600",
                    "claims/2": "600", "control/hold": "600", "control/kill": "600", "git.json": "600"}


@pytest.mark.usefixtures("closed_umask")
def test_with_a_group_all_but_the_environment_is_readable_to_it_whatever_the_umask(
    open_folder: Path, group: grp.struct_group
) -> None:
    run_dir = make_run(open_folder / "run", YAML, "1a2b3c4d", f"kill_switch.group={group.gr_name}").dir
    assert modes(run_dir) == SHARED
    assert {path.stat().st_gid for path in (run_dir, *run_dir.rglob("*"))} == {group.gr_gid}


@pytest.mark.usefixtures("closed_umask")
def test_what_is_written_later_is_readable_to_the_group_too(
    open_folder: Path, group: grp.struct_group, tmp_path: Path
) -> None:
    run = make_run(open_folder / "run", YAML, "1a2b3c4d", f"kill_switch.group={group.gr_name}").run
    os.umask(0o027)   # of a request a strict umask takes the group's share: it is seen all the same
    made = write_as_all_do(run, tmp_path)
    assert made == {f"journal/000000-login-{os.getpid()}.jsonl": "640", "attempts/0001": "2750",
                    "attempts/0001/exit.json": "640", "journal/000001-n0-1.jsonl": "640", "claims/1": "640",
                    "claims/2": "640", "control/hold": "640", "control/kill": "640", "git.json": "600"}
    assert {(run.dir / name).stat().st_gid for name in made} == {group.gr_gid}


def write_as_all_do(run: Run, tmp_path: Path) -> dict[str, str]:
    """Write to a run as verbs do, and as its leader does; modes of what is new, as `modes`."""
    before = modes(run.dir)
    direct = journal.Direct(run.dir)
    writer = journal.Writer(direct, 0, "login")
    writer.write(writer.event("submitted", job="1"))
    assert direct.publish("claims/2", b"{}\n")
    assert runfolder.request(run.dir, "hold", "for a look")
    controls.touch(run.dir / "control" / "kill", "enough")
    runmaking.keep_git(run.dir, {"commit": "1"})
    shared = SharedFolder(run.dir, tmp_path / "spool")   # the leader's way: by its courier
    shared.put("attempts/0001/exit.json", b"{}\n")
    shared.append("journal/000001-n0-1.jsonl", b"{}\n")
    assert shared.publish("claims/1", b"{}\n", 60.0)
    assert shared.close(60.0), "the courier did not deliver"
    return {name: mode for name, mode in modes(run.dir).items() if name not in before}


def test_a_group_that_there_is_not_leaves_nothing_behind(open_folder: Path) -> None:
    with pytest.raises(RunFolderError, match="there is no group 'no-such-team'"):
        make_run(open_folder / "a" / "run", YAML, "1a2b3c4d", "kill_switch.group=no-such-team")
    assert not list(open_folder.iterdir())


def test_a_parent_that_the_group_cannot_pass_is_named_with_the_line_to_type(
    open_folder: Path, group: grp.struct_group
) -> None:
    open_folder.chmod(0o700)
    with pytest.raises(RunFolderError, match="cannot reach the kill switch") as caught:
        make_run(open_folder / "run", YAML, "1a2b3c4d", f"kill_switch.group={group.gr_name}")
    assert f"chgrp {group.gr_name} {open_folder} && chmod g+x {open_folder}" in (caught.value.hint or "")
    assert not list(open_folder.iterdir())


def test_an_environment_and_a_folder_in_another_encoding_are_kept_as_they_are(tmp_path: Path) -> None:
    plan = make_run(tmp_path / "other").run.plan
    env = {"LATIN": "caf\udce9", "LINES": "a\nb=c", "EMPTY": ""}
    meta = {**runfolder.load(tmp_path / "other").meta, "cwd": "/home/caf\udce9"}
    runmaking.create(tmp_path / "run", meta, plan, "#!/bin/bash\n", env).keep()
    assert runfolder.read_env(tmp_path / "run") == env
    assert b"LATIN=caf\xe9" in (tmp_path / "run" / "submit.env").read_bytes()
    loaded = runfolder.load(tmp_path / "run")
    assert loaded.meta["cwd"] == "/home/caf\udce9"
    assert loaded.plan == plans.of_config(loaded.meta["config"], loaded.meta["run_id"])


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes somebody else: needs root")
def test_a_closed_run_of_somebody_else_is_said_to_be_theirs_and_a_way_round_is_told(open_folder: Path) -> None:
    made = make_run(open_folder / "theirs")
    made.dir.chmod(0o700)
    with acting_as(65534):
        assert runpath.is_run_folder(made.dir)
        with pytest.raises(RunFolderError) as reading:
            runfolder.load(made.dir)
        with pytest.raises(RunFolderError) as making:
            runmaking.create(open_folder / "mine", made.run.meta, made.run.plan, "#!/bin/sh\n", {})

    assert reading.value.message == f"you may not read the run in {made.dir}: it is root's"
    assert "Permission denied" in making.value.message and "run_dir=" in str(making.value.hint)
    assert not (open_folder / "mine").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes somebody else: needs root")
def test_submitting_where_somebody_elses_run_is_names_the_way_round(open_folder: Path) -> None:
    made = make_run(open_folder / "theirs")
    made.dir.chmod(0o700)
    with acting_as(65534), pytest.raises(RunFolderError) as refused:
        submitting.free_folder(made.dir)
    assert "root's" in refused.value.message and "run_dir=" in str(refused.value.hint)


def _make_once(gate: tuple[int, int], folder: Path, run_id: str) -> int:
    """A child that makes a run in `folder` once the gate is closed; it ends with 0 where that worked."""
    child = os.fork()
    if child:
        return child
    os.close(gate[1])
    os.read(gate[0], 1)
    code = 2
    try:
        make_run(folder, YAML, run_id)
        code = 0
    except RunFolderError:
        code = 1
    finally:
        os._exit(code)


def test_of_two_that_find_the_mark_of_a_dead_submission_one_makes_the_run(tmp_path: Path) -> None:
    for number in range(20):
        folder, gate = tmp_path / f"run{number}", os.pipe()
        for name in ("journal", "attempts", "claims", "control"):
            (folder / name).mkdir(parents=True)
        (folder / "job.sbatch").write_text("half of it")
        (folder / ".begun").write_text(f"{os.uname().nodename} 99999999")
        children = [_make_once(gate, folder, run_id) for run_id in ("1a2b3c4d", "5e6f7a8b")]
        os.close(gate[1])
        codes = sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
        os.close(gate[0])
        assert codes == [0, 1], f"round {number}: {codes}"
        left = {path.name for path in folder.iterdir()}
        assert left == WHOLE, f"round {number}: {left}"
        assert (folder / "job.sbatch").read_text() == "#!/bin/bash\n" and runfolder.load(folder).plan


def test_a_run_whose_maker_has_just_ended_keeps_its_files(tmp_path: Path) -> None:
    made = make_run(tmp_path / "run")
    (made.dir / ".begun").write_text(f"{os.uname().nodename} 99999999")
    with pytest.raises(RunFolderError, match="already holds a run"), runmaking.Mark() as mark:
        mark.put(made.dir, [], is_new=False)
    left = {path.name for path in made.dir.iterdir()}
    assert left == {*WHOLE, ".begun"}


def test_who_is_refused_leaves_the_folders_of_a_run_that_is_being_made(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir(0o700)
    (folder / "control").mkdir()
    (folder / ".begun").write_text(f"{os.uname().nodename} {os.getpid()}")
    with pytest.raises(RunFolderError, match="is being made by process"):
        make_run(folder)
    assert sorted(path.name for path in folder.iterdir()) == [".begun", "control"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
