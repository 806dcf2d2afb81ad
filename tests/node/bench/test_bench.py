"""The measurements really run on this machine, as the program that nodes get."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from safelaunch.node.bench import main, work
from safelaunch.node.children import Outcome
from tests.handmade import fake_command

PROGRAM = str(Path(main.__file__))
GPUS = {"torch": "2", "name": "H100", "gpus": 2, "threads": 8, "matmul": [[700.0, 710.0, 690.0], [500.0, 510.0, 520.0]],
        "memory": [[3000.0], [2900.0]]}


def ask(words: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-I", "-S", PROGRAM, json.dumps(words)], capture_output=True, text=True,
                          timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def rows(words: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in ask(words)["checks"]}


def python(folder: Path, body: str) -> str:
    fake_command(folder, "trainings-python", body)
    return str(folder / "trainings-python")


def test_each_measurement_has_a_positive_rate_a_unit_and_as_many_samples_as_asked(tmp_path: Path) -> None:
    without = python(tmp_path, """echo '{"torch": null}'""")
    found = rows({"paths": [str(tmp_path)], "repeats": 2, "python": without})
    assert {name: row["outcome"] for name, row in found.items()} == {
        "matmul": "ok", "gpu_memory": "skipped", "memory": "ok", "disk_write": "ok", "disk_read": "ok"}
    for name in ("matmul", "memory", "disk_write", "disk_read"):
        facts = found[name]["facts"]
        assert facts["value"] > 0 and len(facts["samples"]) == 2 and facts["unit"].endswith("/s"), found[name]
    assert found["matmul"]["facts"]["device"] == "plain Python, one core"
    assert [path.name for path in tmp_path.iterdir()] == ["trainings-python"], "the test of the disk leaves nothing"


@pytest.mark.torch
@pytest.mark.timed
def test_pytorch_multiplies_where_the_trainings_interpreter_has_it() -> None:
    found = rows({"skip": ["memory"], "repeats": 1, "python": sys.executable})["matmul"]
    assert found["outcome"] == "ok", found
    assert found["facts"]["value"] > 0 and "torch" in found["facts"]


def test_an_interpreter_that_hangs_costs_its_deadline_and_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(main.EACH_S, "torch", 0.2)
    bench = main.Bench({"python": python(tmp_path, "exec sleep 600"), "skip": ["gpu_memory"], "repeats": 1})
    found = {row["name"]: row["outcome"] for row in bench.run()}
    assert found == {"matmul": "failed", "memory": "ok"}


@pytest.mark.parametrize("body", ["echo no; exit 3", "echo 'no json'", """echo '{"torch": 1}'""", "exec /nonexistent"],
                         ids=["exit code", "no answer", "half an answer", "no such program"])
def test_an_interpreter_that_fails_leaves_the_rate_unknown(tmp_path: Path, body: str) -> None:
    found = rows({"python": python(tmp_path, body), "skip": ["memory"], "repeats": 1})
    assert (found["matmul"]["outcome"], found["matmul"]["facts"]) == ("unknown", {})


def test_a_path_that_is_not_there_fails_its_own_rows(tmp_path: Path) -> None:
    told = ask({"paths": [str(tmp_path / "gone")], "skip": ["matmul", "gpu_memory", "memory"]})["checks"]
    assert [(row["name"], row["outcome"], row["why"]) for row in told] == [
        ("disk_write", "failed", "No such file or directory"), ("disk_read", "failed", "No such file or directory")]


def test_what_had_no_time_left_is_unknown() -> None:
    bench = main.Bench({"skip": ["matmul", "gpu_memory"]})
    bench.until_s = 0.0
    assert [(row["outcome"], row["why"]) for row in bench.run()] == [("unknown", "no time was left for it")]


def test_a_node_is_as_fast_as_its_slowest_gpu() -> None:
    told = work.read_torch(Outcome(json.dumps(GPUS).encode(), b"", 0, False), "python")
    assert (told["matmul"]["facts"]["value"], told["matmul"]["facts"]["slowest_gpu"]) == (510.0, 1)
    assert (told["gpu_memory"]["facts"]["value"], told["gpu_memory"]["facts"]["device"]) == (2900.0, "2 × H100")


@pytest.mark.parametrize("words", [{"repeats": 0}, {"repeats": True}, {"skip": ["gpu"]}, {"paths": "x"}],
                         ids=["none", "no number", "no such measurement", "no list"])
def test_a_request_that_makes_no_sense_gets_words_and_no_rows(words: dict[str, Any]) -> None:
    told = ask(words)
    assert told["checks"] == [] and told["notes"][0].startswith("not a request: ")
