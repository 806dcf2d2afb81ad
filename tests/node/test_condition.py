"""What a node shows beside a training, read on this machine and in folders that look like /proc and /sys."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from safelaunch.adapters.nodecondition import look_at_nodes
from safelaunch.adapters.noderound import Target
from safelaunch.core.slow.condition import FIGURES
from safelaunch.node import condition
from tests.handmade import fake_command
from tests.tables import each


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def rows(monkeypatch: pytest.MonkeyPatch, folder: Path) -> dict[str, float]:
    monkeypatch.setattr(condition, "PROC", str(folder / "proc"))
    monkeypatch.setattr(condition, "SYS", str(folder / "sys"))
    monkeypatch.setattr(condition, "BETWEEN_S", 0.0)
    return {row["name"]: row["facts"]["value"] for row in condition.look()}


def test_the_program_that_nodes_get_answers_on_this_machine_with_figures_that_are_known() -> None:
    asked = look_at_nodes(Target("", ("n0",), is_local=True), {"PATH": os.environ["PATH"]})
    asked.wait()
    (answer,) = asked.answers
    assert (answer.node, answer.notes) == ("n0", ()) and answer.results
    assert {result.name for result in answer.results} <= set(FIGURES)
    assert all(result.number("value") is not None for result in answer.results)


def test_files_of_proc_and_sys_become_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {
        "proc/stat": "cpu  100 0 100 700 50 0 0 50 0 0\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "2000000\n",
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "3000000\n",
        "sys/class/thermal/thermal_zone0/temp": "45000\n", "sys/class/thermal/thermal_zone1/temp": "61500\n",
        "sys/class/thermal/thermal_zone2/temp": "no answer\n",
        "sys/class/net/eth0/statistics/rx_errors": "7\n", "sys/class/net/eth0/statistics/tx_errors": "2\n",
        "sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error": "30\n",
        "sys/class/infiniband/mlx5_0/ports/1/counters/link_downed": "1\n",
        "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data": "99999\n"})
    monkeypatch.setenv("PATH", str(tmp_path))
    found = rows(monkeypatch, tmp_path)
    assert found == {"foreign_cpu": 0.0, "cpu_clock": 2500.0, "temperature": 61.5, "nic_errors": 9.0, "ib_errors": 31.0}


def test_stolen_time_and_that_of_other_users_is_what_has_grown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([{"steal": 50.0, "all": 1000.0, "foreign": 10.0, "throttled": 4.0},
                  {"steal": 75.0, "all": 1100.0, "foreign": 9.0, "throttled": 4.0}])
    monkeypatch.setattr(condition, "_counters", lambda: next(looks))
    found = rows(monkeypatch, tmp_path)
    assert (found["steal"], found["foreign_cpu"], found["cpu_throttled"]) == (25.0, 0.0, 0.0)


def test_other_users_processes_are_counted_whatever_their_names_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(tmp_path, {"7/stat": "7 (a) b) R " + " ".join(["0"] * 10) + " 250 50 0 0\n", "9/stat": "torn", "x/stat": ""})
    monkeypatch.setattr(condition, "PROC", str(tmp_path))
    assert condition._others(os.geteuid()) == []
    assert [condition._cpu_ticks(path) for path in sorted(condition._others(os.geteuid() + 1))] == [300.0, 0.0]


def test_a_node_that_hides_its_proc_still_tells_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "sys", {"class/thermal/thermal_zone0/temp": "61500"})
    monkeypatch.setattr(condition, "PROC", str(tmp_path / "none"))
    monkeypatch.setattr(condition, "SYS", str(tmp_path / "sys"))
    monkeypatch.setattr(condition, "BETWEEN_S", 0.0)
    assert [(row["name"], row["facts"]["value"]) for row in condition.look() if "gpu" not in row["name"]] == [
        ("temperature", 61.5)]


def test_a_gpu_that_is_slowed_by_heat_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """<nvidia_smi_log><gpu id="0"><temperature><gpu_temp>91 C</gpu_temp></temperature><clocks><sm_clock>1200 MHz
</sm_clock></clocks><clocks_event_reasons><clocks_event_reason_hw_thermal_slowdown>Active
</clocks_event_reason_hw_thermal_slowdown></clocks_event_reasons></gpu></nvidia_smi_log>"""
    fake_command(tmp_path, "nvidia-smi", f"echo '{text}'")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert condition._gpus() == {
        "gpu_clock": (1200.0, "MHz"), "gpu_temperature": (91.0, "C"), "gpu_slowed": (1.0, "GPUs")}


@each(("asked", "note"), [
    ("{}", "no /proc here"), ('{"node": "n0; rm"}', "no /proc here"), ("no json", "not a request"),
    ('["n0"]', "not a request")])
def test_whatever_is_asked_the_answer_is_one_line(asked: str, note: str, capsys: pytest.CaptureFixture[str],
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("no /proc here")

    monkeypatch.setattr(condition, "look", fail)
    assert condition.main(asked) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert told["checks"] == [] and note in told["notes"][0]
