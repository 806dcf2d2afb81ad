"""The text of slurm.conf: what may be overridden, and what a folder must be."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from safelaunch.errors import SandboxError
from safelaunch.sandbox import conf, daemons
from safelaunch.sandbox.registry import RegisteredSandbox

ENTRY = RegisteredSandbox(name="box", dir="/tmp/box", port=12000, nodes=4, cpus=8, gpus=8, memory_mb=2000)


def settings(text: str) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in text.splitlines())


def test_what_a_crash_looks_like_follows_slurms_defaults() -> None:
    found = settings(conf.render_slurm_conf(ENTRY, {}))
    assert (found["SlurmdTimeout"], found["KillWait"], found["MinJobAge"]) == ("300", "30", "300")


@pytest.mark.parametrize("key", ["KillWait", "killwait", "KILLWAIT"])
def test_an_override_replaces_the_setting_whatever_its_capitals(key: str) -> None:
    lines = conf.render_slurm_conf(ENTRY, {key: "5"}).splitlines()
    assert [line for line in lines if line.lower().startswith("killwait")] == ["KillWait=5"]


def test_an_override_may_add_a_setting() -> None:
    assert settings(conf.render_slurm_conf(ENTRY, {"MaxArraySize": "10"}))["MaxArraySize"] == "10"


@pytest.mark.parametrize(
    ("key", "value"), [("Kill Wait", "5"), ("", "5"), ("KillWait", "5\nSlurmUser=x")], ids=["blank", "empty", "newline"]
)
def test_an_override_cannot_bring_in_a_second_line(key: str, value: str) -> None:
    with pytest.raises(SandboxError, match="KEY=VALUE"):
        conf.render_slurm_conf(ENTRY, {key: value})


def test_a_sandbox_without_gpus_has_no_gres() -> None:
    bare = RegisteredSandbox(**{**ENTRY.__dict__, "gpus": 0})
    assert "gres" not in conf.render_slurm_conf(bare, {}).lower()
    assert conf.render_gres_conf(bare) == ""


def test_the_default_partition_stays_as_it_was_beside_those_that_preempt() -> None:
    def partitions(entry: RegisteredSandbox) -> list[str]:
        rows = conf.render_slurm_conf(entry, {}).splitlines()
        return [row.split()[0].partition("=")[2] for row in rows if row.startswith("PartitionName")]

    assert partitions(ENTRY) == ["main"]
    preempting = replace(ENTRY, preemption=True)
    assert partitions(preempting) == ["main", "low", "low-requeue", "high"]
    assert conf.render_slurm_conf(preempting, {}).count("Default=YES") == 1


def test_with_cables_every_node_has_its_address_and_slurmctld_its_own() -> None:
    text = conf.render_slurm_conf(replace(ENTRY, netns=True, accounting=True), {})
    assert "127.0.0.1" not in text and "localhost" not in text
    assert [line.split()[1] for line in text.splitlines() if line.startswith("NodeName")] == [
        f"NodeAddr=10.77.1.{i}" for i in (1, 2, 3, 4)
    ]


@pytest.mark.parametrize(
    ("folder", "complaint"),
    [
        (Path("/tmp/a b"), "plain characters"),
        (Path("/tmp/a[0]"), "plain characters"),
        (Path("box"), "absolute"),
        (Path("/tmp") / ("x" * 80), "longer than"),
    ],
    ids=["blank", "brackets", "relative", "long"],
)
def test_a_folder_that_slurm_cannot_use_is_refused(folder: Path, complaint: str) -> None:
    with pytest.raises(SandboxError, match=complaint):
        conf.check_dir(folder)


def test_a_folder_that_ordinary_users_cannot_reach_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    tmp_path.chmod(0o700)
    short = tmp_path / "in" / "x"
    with pytest.raises(SandboxError, match=r"cannot be passed by ordinary users|longer than"):
        conf.check_dir(short)


def test_missing_programs_are_named_with_their_packages_and_the_line_to_type(tmp_path: Path) -> None:
    with pytest.raises(SandboxError) as refused:
        daemons.check_able(path=str(tmp_path))
    assert "slurmd, slurmctld" in refused.value.message
    assert "apt-get install mount munge passwd slurm-client slurmctld slurmd util-linux" in str(refused.value.hint)
    assert refused.value.exit_code == 2


def test_machine_with_loopback_alone_is_told_to_give_the_sandbox_a_network_of_its_own(slurm_here: None) -> None:
    check = "from safelaunch.sandbox import daemons; daemons.check_resolves()"
    daemons.check_resolves()
    done = subprocess.run(["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, "-c",
                           check], capture_output=True, text=True, timeout=60)
    assert "has no address but loopback" in done.stderr, done
