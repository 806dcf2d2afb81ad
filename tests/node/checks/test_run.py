"""The runner: a hang costs its own deadline, a bad request gets words, nothing is left behind."""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from safelaunch.node.checks import disk, main, table
from safelaunch.node.checks.answer import CheckRequest
from tests.frozen import FuseMount, LoopMount
from tests.node.checks.nodes import H100, NAMES, MadeNode
from tests.tables import each

PROGRAM = str(Path(main.__file__))


def shorten(monkeypatch: pytest.MonkeyPatch, name: str, deadline_s: float) -> None:
    (check,) = [check for check in table.CHECKS if check.name == name]
    monkeypatch.setattr(check, "deadline_s", deadline_s)


def ask(words: dict[str, Any], python: str = sys.executable) -> dict[str, Any]:
    done = subprocess.run([python, "-I", "-S", PROGRAM, json.dumps(words)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_disk_that_hangs_costs_its_deadline_and_hangs_no_other_check(
    freezable: LoopMount | FuseMount, node: MadeNode
) -> None:
    shorten(node.patch, "rw", 8.0)
    node.patch.setattr(disk, "LIGHT_BYTES", 4 * disk.BLOCK)
    good = node.folder / "good"
    good.mkdir()
    freezable.freeze()
    skip = [name for name in NAMES if name not in ("rw", "memory")]
    hung, well, memory = main.run(CheckRequest({"paths": [str(freezable.path), str(good)], "skip": skip}))
    freezable.thaw()
    assert (hung["item"], hung["outcome"]) == (str(freezable.path), "failed") and "no answer within" in hung["why"]
    assert (well["item"], well["outcome"], memory["outcome"]) == (str(good), "ok", "ok")


def test_a_tool_that_hangs_fails_its_check_and_no_other(node: MadeNode) -> None:
    (smi,) = [source for source in table.SOURCES if source.name == "smi"]
    node.patch.setattr(smi, "deadline_s", 0.3)
    node.program("nvidia-smi", by="exec sleep 600")
    count = node.check("gpu_count", gpus=8)
    assert count["outcome"] == "failed" and "gave no answer in time" in count["why"]
    assert node.check("memory")["outcome"] == "ok"


def test_what_had_no_turn_is_unknown_and_not_failed(node: MadeNode) -> None:
    node.patch.setattr(main, "AT_ONCE", 1)
    (name,) = [check for check in table.CHECKS if check.name == "name"]
    shorten(node.patch, "name", 1.5)
    node.patch.setattr(name, "function", lambda request, item: time.sleep(60))
    rows = node.checks("name", names=["n1", "n2"], deadline_s=1)
    assert [row["outcome"] for row in rows] == ["failed", "unknown", "unknown"]
    assert [row["why"] for row in rows][:2] == ["no answer within 1 s", "no time was left for it"]


def test_a_check_with_a_bug_is_unknown_and_says_what_broke(node: MadeNode) -> None:
    (memory,) = [check for check in table.CHECKS if check.name == "memory"]
    node.patch.setattr(memory, "function", lambda request, item: request.facts["key"])
    answer = node.check("memory")
    assert (answer["outcome"], answer["why"]) == ("unknown", "the check itself failed: AttributeError: "
                                                   "'CheckRequest' object has no attribute 'facts'")


def test_a_disk_test_leaves_no_file_behind(node: MadeNode) -> None:
    folder = node.folder / "disk"
    folder.mkdir()
    answer = node.check("rw", paths=[str(folder)], level="light")
    assert answer["facts"]["write_gb_s"] > 0 and answer["facts"]["read_gb_s"] > 0
    assert list(folder.iterdir()) == []


def test_blocks_that_come_back_wrong_are_counted(tmp_path: Path) -> None:
    fill = bytes(disk.BLOCK - 8)
    fd = os.open(tmp_path, os.O_RDWR | os.O_TMPFILE)
    disk._write(fd, fill, 3)
    assert disk._read(fd, fill, 3)[1] == 0
    os.pwrite(fd, b"\1", disk.BLOCK + 77)
    assert disk._read(fd, fill, 3)[1] == 1
    os.ftruncate(fd, 10)
    assert disk._read(fd, fill, 3)[1] == 3
    os.close(fd)


@pytest.mark.parametrize("loop_mount", [32], indirect=True)
def test_a_full_disk_and_one_that_is_read_only_fail(loop_mount: LoopMount, node: MadeNode) -> None:
    paths = [str(loop_mount.path)]
    node.patch.setenv("PATH", os.defpath)   # for mount
    loop_mount.read_only()
    assert node.check("rw", paths=paths)["why"] == "Read-only file system"
    loop_mount.read_only(False)
    (loop_mount.path / "full").write_bytes(bytes(loop_mount.free_bytes() - (4 << 20)))
    assert node.check("space", paths=paths)["outcome"] == "failed"
    assert "too little space for a test" in node.check("rw", paths=paths)["why"]


def test_a_limit_that_is_low_is_found_in_the_process_that_has_it() -> None:
    skip = [name for name in NAMES if name != "limits"]
    argv = ["bash", "-c", 'ulimit -n 256; exec "$@"', "-", sys.executable, "-I", "-S", PROGRAM,
            json.dumps({"skip": skip})]
    (row,) = json.loads(subprocess.run(argv, capture_output=True, text=True, timeout=60).stdout)["checks"]
    assert (row["outcome"], row["facts"]["files"]) == ("failed", 256)


def test_the_modules_of_a_real_interpreter_are_listed(node: MadeNode) -> None:
    answer = node.check("python", python=sys.executable)
    assert answer["facts"]["python"] == sys.version.split()[0] and "pytest" in answer["facts"]["modules"]


def test_an_interpreter_that_was_named_and_is_missing_fails(node: MadeNode) -> None:
    assert node.check("python", python="/none/python")["outcome"] == "failed"


def test_a_light_look_leaves_out_what_takes_long() -> None:
    rows = main.run(CheckRequest({"skip": ["rw", "stuck", "infiniband", "name", "python", "dcgm"]}))
    names = {row["name"] for row in rows}
    assert "memory" in names and not names & {"torch", "nhc", "gpu_burn", "nccl_tests"}


@pytest.mark.parametrize("version", ["3.9", ""])
def test_the_program_runs_under_an_old_python_without_site_packages(version: str, tmp_path: Path) -> None:
    found = [*glob.glob(str(Path.home() / f".pyenv/versions/{version}.*/bin/python{version}")), sys.executable]
    if version and len(found) == 1:
        pytest.skip(f"no python{version} on this machine")
    answer = ask({"paths": [str(tmp_path)], "node": "n7"}, found[0])
    assert (answer["v"], answer["node"], answer["notes"]) == (1, "n7", [])
    assert {row["name"] for row in answer["checks"]} == set(NAMES) - {
        "torch", "nhc", "gpu_burn", "nccl_tests", "gpu_alone", "gpu_together"}
    assert next(row for row in answer["checks"] if row["name"] == "rw")["outcome"] == "ok"


@each(("words", "said"), [
    ({"level": "deep"}, "none of light, full and isolate"), ({"paths": "/scratch"}, "paths: not a list"),
    ({"paths": ["a\0b"]}, "not a text"), ({"paths": ["x"] * 65}, "paths: not a list"), ({"port": -1}, "port: not a"),
    ({"port": True}, "port: not a"), ({"gpus": "8"}, "gpus: not a"), ({"python": 3}, "python: not a text"),
    ({"skip": ["rw2"]}, "skip: no check of this name: rw2"), ({"node": "n" * 5000}, "node: not a text")])
def test_a_request_that_makes_no_sense_gets_words(words: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        main.read(words)


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "\0", "[" * 100_000])
def test_a_request_that_is_none_is_answered(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(text) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["checks"] == [] and answer["notes"][0].startswith("not a request: ")


def test_no_part_of_a_request_becomes_code(node: MadeNode) -> None:
    node.gpus(H100)
    bait = f"$(touch {node.folder}/canary);`touch {node.folder}/canary`"
    main.run(CheckRequest({"paths": [bait], "names": [bait], "python": bait, "gpu_model": bait, "control": bait}))
    assert not (node.folder / "canary").exists()
