"""safelaunch nodes bench: on this machine for real, elsewhere by what nodes say; real jobs: tests/drills."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from safelaunch.cli import run
from safelaunch.node.bench.main import NAMES
from safelaunch.verbs.nodes.nodes import BENCHES
from tests.handmade import fake_command

HOST = os.uname().nodename.split(".")[0]
ONLY_DISK = ["--skip", "matmul", "--skip", "gpu_memory", "--skip", "memory"]
# Answers as a node of that name would, n2 at half the rate.
SRUN = r"""
for word in "$@"; do [[ $word == --nodelist=* ]] && node=${word#--nodelist=}; done
value=10; [[ $node == n2 ]] && value=5
[[ $node == n9 ]] && { echo "srun: error: Requested nodes are busy" >&2; exit 1; }
echo '{"v":1,"checks":[{"name":"memory","item":"","outcome":"ok","why":"","took_s":1,
"facts":{"value":'$value',"unit":"GB/s","device":"copy"}}],"notes":[]}' | tr -d '\n'"""


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NODELIST"):
        monkeypatch.delenv(name, raising=False)


def test_the_verb_takes_what_the_node_measures() -> None:
    assert (*NAMES, "bus") == BENCHES


def test_this_machine_is_measured_and_alone_called_neither_good_nor_slow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["nodes", "bench", "--local", "--path", str(tmp_path), *ONLY_DISK, "--repeats", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (node,) = told["nodes"]
    assert (told["v"], told["ok"], node["node"], node["verdict"]) == (1, True, HOST, "unknown")
    assert [row["name"] for row in node["measurements"] if row["facts"]["value"] > 0] == ["disk_write", "disk_read"]


def test_a_slow_node_ends_with_13_and_the_next_command_and_a_busy_one_gives_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_command(tmp_path, "srun", SRUN)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert run(["nodes", "bench", "n[1-4,9]"]) == 13
    out, err = capsys.readouterr()
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["node", "memory", "z", "verdict", "why"]
    assert rows[1][0] == "n9" and "Requested nodes are busy" in out.splitlines()[1]
    assert rows[2][:3] == ["n2", "5", "GB/s"] and "memory: 50 % slower than the others" in out.splitlines()[2]
    assert "5 nodes" in err and "1 no answer, 1 slow, 3 good" in err
    assert 'safelaunch nodes suspect n2 --why "slow in nodes bench: memory"' in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "which nodes? outside of a job name them, or say --local for this machine"),
        (["n1", "--local"], "--local looks at this machine alone: name no nodes with it"),
        (["n1", "--", "-p", "gpu"], "'gpu' is no option of srun"),
        (["--local", "--skip", "gpu"], "Invalid value for '--skip'"),
        (["--local", "--tolerance", "0"], "Invalid value for '--tolerance'"),
    ],
    ids=["no nodes", "local and nodes", "option in two words", "no such measurement", "no tolerance"],
)
def test_what_cannot_be_obeyed_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nodes", "bench", *words]) == 2
    assert said in capsys.readouterr().err
