"""What the tools print, read in its real form, and in forms that nobody expects."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safelaunch.node.checks import gpu, network, smi, table, witnesses
from safelaunch.why.rules.machine import gpu as gpu_rules
from tests.node.checks.nodes import H100, KERNEL, PROCESS, SAID, XID, MadeNode
from tests.pure.why.judged import judge_text
from tests.tables import each

pytestmark = pytest.mark.timed   # real programs and screens, within real deadlines

V100 = (SAID / "smi-v100.xml").read_text()
ROCM = (SAID / "rocm.json").read_text()
LOST = "Unable to determine the device handle for GPU 0000:4E:00.0: GPU is lost.  Reboot the system to recover this GPU"
NO_DRIVER = ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
             "NVIDIA driver is installed and running.\n")
IDLE, BUSY = ((SAID / f"smi-580-{how}.xml").read_text() for how in ("idle", "busy"))
SAID_BY_KERNEL = (SAID / "kernel-580.txt").read_text().splitlines()
TEXTS = (H100, BUSY, V100, ROCM, (SAID / "nvlink.txt").read_text(), (SAID / "dcgmi-diag.txt").read_text(),
         *KERNEL, XID % 79, *SAID_BY_KERNEL)


def test_a_log_of_today_is_read() -> None:
    told = smi.parse_log(H100)
    assert told is not None and (told["driver"], told["cuda"]) == ("550.54.15", "12.4")
    first, second = told["gpus"]
    assert (first["id"], second["id"]) == ("00000000:19:00.0", "00000000:3B:00.0")
    assert (first["model"], first["mem_mb"], first["used_mb"]) == ("NVIDIA H100 80GB HBM3", 81559, 1)
    assert (first["slowed_by"], first["sm_mhz"], first["sm_max_mhz"]) == (["gpu_idle"], 345, 1980)
    assert (first["ecc_volatile"], first["remap_pending"], first["remap_failed"]) == (0, False, False)
    assert (first["retire_pending"], first["pcie_width"], first["pcie_width_max"]) == (None, 16, 16)
    assert first["processes"] == []


@each(("text", "clock_mhz", "temp_c", "slowed_by", "used_mb", "processes"), [
    (IDLE, 345, 34, ["gpu_idle"], 0, []),
    (BUSY, 1980, 37, [], 529, [{"pid": 4242, "name": "python3", "used_mb": 520}]),
])
def test_what_a_real_h100_said_is_read(
    text: str, clock_mhz: int, temp_c: int, slowed_by: list[str], used_mb: int, processes: list[dict[str, Any]]
) -> None:
    told = smi.parse_log(text)
    assert told is not None and (told["driver"], told["cuda"]) == ("580.159.04", "13.0")
    (card,) = told["gpus"]
    assert (card["id"], card["model"], card["mem_mb"]) == ("00000000:00:07.0", "NVIDIA H100 80GB HBM3", 81559)
    assert (card["sm_mhz"], card["temp_c"], card["slowed_by"]) == (clock_mhz, temp_c, slowed_by)
    assert (card["used_mb"], card["processes"]) == (used_mb, processes)
    assert (card["ecc_volatile"], card["remap_pending"], card["retire_pending"]) == (0, False, None)
    assert (card["pcie_width"], card["pcie_width_max"]) == (16, 16)


def test_xids_that_programs_caused_on_a_real_h100_blame_no_node() -> None:
    answer = witnesses.judge_xids(SAID_BY_KERNEL)
    assert (answer["outcome"], answer["why"]) == ("ok", "no Xid since boot but 3 of programs' own faults")
    assert answer["facts"]["xids"] == [["0000:00:07", 43], ["0000:00:07", 31], ["0000:00:07", 43]]
    verdict = judge_text("\n".join(line.partition(";")[2] for line in SAID_BY_KERNEL))
    assert (verdict.category, verdict.suspects) == ("native_crash", ())


def test_a_log_of_an_older_driver_is_read() -> None:
    told = smi.parse_log(V100)
    assert told is not None
    (gpu,) = told["gpus"]
    assert (gpu["ecc_volatile"], gpu["retire_pending"], gpu["remap_pending"]) == (2, True, None)
    assert gpu["slowed_by"] == ["sw_power_cap", "hw_slowdown", "hw_thermal_slowdown"]
    assert gpu["processes"] == [{"pid": 41287, "name": "/opt/env/bin/python", "used_mb": 30109}]   # no display's


def test_links_are_counted_up_and_down() -> None:
    text = (SAID / "nvlink.txt").read_text()
    assert smi.parse_links(text) == {"0": {"up": 18, "down": 0}, "1": {"up": 18, "down": 0}}
    down = text.replace("Link 17: 26.562 GB/s", "Link 17: <inactive>", 1)
    assert smi.parse_links(down)["0"] == {"up": 17, "down": 1}


def test_amd_gpus_are_read_whatever_the_release_calls_the_keys() -> None:
    told = smi.parse_rocm(ROCM)
    assert told is not None and told["driver"] == "6.3.6" and len(told["gpus"]) == 2
    assert (told["gpus"][0]["mem_mb"], told["gpus"][0]["used_mb"]) == (65520, 10)
    assert smi.parse_rocm(ROCM.replace("Card series", "Card Series")) == told


def test_a_log_with_entities_is_refused() -> None:
    assert smi.parse_log('<!DOCTYPE x [<!ENTITY a "b">]><nvidia_smi_log>&a;</nvidia_smi_log>') is None


@each("text", ["", "{}", "[]", "<nvidia_smi_log>", "<html/>", "N/A", "\0\xff", NO_DRIVER, "[" * 100_000])
def test_no_log_is_none(text: str) -> None:
    assert smi.parse_log(text) is None
    assert smi.parse_links(text) == {} and witnesses.read_table(text) == []
    rocm = smi.parse_rocm(text)
    assert rocm is None or rocm["gpus"] == []


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.sampled_from(TEXTS), st.integers(0, 9000), st.integers(0, 400), st.text(max_size=60))
def test_a_garbled_text_crashes_no_reader(text: str, begin: int, length: int, put: str) -> None:
    garbled = text[:begin] + put + text[begin + length:]
    smi.parse_log(garbled), smi.parse_links(garbled), smi.parse_rocm(garbled), witnesses.read_table(garbled)
    assert witnesses.judge_xids(garbled.splitlines())["outcome"] in ("ok", "failed", "skipped", "unknown")


def test_a_gpu_that_is_lost_fails_once_and_leaves_the_rest_unknown(node: MadeNode) -> None:
    node.program("nvidia-smi", LOST, 15)
    assert node.check("gpu_count")["why"] == f"nvidia-smi: {LOST}"
    for name in ("gpu_model", "gpu_driver", "gpu_ecc", "gpu_clocks", "gpu_pcie", "gpu_nvlink", "gpu_leftovers"):
        assert node.check(name)["outcome"] == "unknown"


def test_a_driver_that_is_dead_fails_on_a_node_with_cards_only(node: MadeNode) -> None:
    node.program("nvidia-smi", NO_DRIVER, 9)
    assert node.check("gpu_count")["outcome"] == "skipped"
    node.card()
    assert node.check("gpu_count")["outcome"] == "failed"


def test_missing_gpus_fail_where_some_were_asked(node: MadeNode) -> None:
    answer = node.check("gpu_count", gpus=8)
    assert (answer["outcome"], answer["why"]) == ("failed", "0 GPUs, 8 asked")


def test_amd_gpus_are_counted_and_what_is_not_looked_at_is_skipped(node: MadeNode) -> None:
    node.program("rocm-smi", ROCM)
    assert node.check("gpu_count", gpus=2)["outcome"] == "ok"
    assert node.check("gpu_memory")["outcome"] == "ok"
    assert node.check("gpu_driver")["facts"] == {"driver": "6.3.6", "cuda": None}
    answer = node.check("gpu_ecc")
    assert (answer["outcome"], answer["why"]) == ("skipped", "not looked at on AMD GPUs")


@each(("model", "asked", "fits"), [
    ("NVIDIA A100-SXM4-80GB", "a100", True), ("NVIDIA A100-SXM4-80GB", "A100L", True),
    ("NVIDIA A100-SXM4-80GB", "nvidia_a100_80", True), ("NVIDIA A100-SXM4-80GB", "a10", False),
    ("NVIDIA A100-SXM4-80GB", "h100", False), ("NVIDIA A10", "a100", False), ("NVIDIA RTX A6000", "rtxa6000", True),
    ("Quadro RTX 8000", "rtx8000", True), ("NVIDIA GeForce RTX 2080 Ti", "2080ti", True), ("Tesla T4", "t4", True),
    ("NVIDIA A100-SXM4-80GB", "a100_1g.5gb", True), ("AMD Instinct MI250X", "mi250", True),
    ("NVIDIA A100-SXM4-80GB", "", True), ("NVIDIA A100-SXM4-80GB", "large", True),
    ("NVIDIA A100-SXM4-80GB", "1g.5gb", True), ("NVIDIA A100-SXM4-80GB", "ampere", True), ("NVIDIA L40S", "l40", True),
])
def test_a_sites_word_for_a_gpu_fits_its_model_or_names_another_product(model: str, asked: str, fits: bool) -> None:
    assert gpu.is_of_type(model, asked) is fits


def test_several_models_on_a_node_fail(node: MadeNode) -> None:
    node.gpus(H100.replace("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", 1))
    assert "several models" in node.check("gpu_model")["why"]


def test_a_driver_that_asks_for_a_reset_fails(node: MadeNode) -> None:
    node.gpus(H100.replace("<processes>", "<gpu_recovery_action>Reset</gpu_recovery_action><processes>", 1))
    assert node.check("gpu_count")["why"] == "the driver asks for a reset or reboot: 00000000:19:00.0"


@each(("word", "is_due"), [("No", False), ("N/A", False), ("Unknown Error", False), ("Yes", True),
                           ("GPU requires reset", True)])
def test_a_repair_that_waits_for_a_reset_is_read(word: str, is_due: bool) -> None:
    row = f"<tpc_repair_pending>{word}</tpc_repair_pending></ecc_errors>"
    told = smi.parse_log(H100.replace("</ecc_errors>", row, 1))
    assert told is not None and [bool(one["repairs"]) for one in told["gpus"]] == [is_due, False]


@each(("errors", "outcome", "why"), [
    (0, "ok", "a row remap waits for a reset"),
    (2, "failed", "2 uncorrectable errors; 00000000:19:00.0: a row remap waits for a reset")])
def test_a_row_remap_that_waits_makes_a_node_odd_and_errors_beside_it_fail_it(
    node: MadeNode, errors: int, outcome: str, why: str
) -> None:
    waits = H100.replace("<remapped_row_pending>No", "<remapped_row_pending>Yes", 1)
    node.gpus(waits.replace("<dram_uncorrectable>0<", f"<dram_uncorrectable>{errors}<", 1))
    answer = node.check("gpu_ecc")
    assert (answer["outcome"], answer["why"]) == (outcome, f"00000000:19:00.0: {why}")
    assert answer["facts"].get("odd", False) is (errors == 0)


def test_memory_that_cannot_be_repaired_fails_and_is_named(node: MadeNode) -> None:
    node.gpus(H100.replace("</ecc_errors>", "<unrepairable_memory>Yes</unrepairable_memory></ecc_errors>", 1))
    answer = node.check("gpu_ecc")
    assert (answer["outcome"], answer["why"]) == ("failed", "00000000:19:00.0: memory cannot be repaired")


def test_an_xid_of_a_program_is_no_fault_of_the_node() -> None:
    answer = witnesses.judge_xids([*KERNEL, XID % 31])
    assert (answer["outcome"], answer["facts"]["xids"]) == ("ok", [["0000:4e:00", 31]])


@pytest.mark.parametrize("number", [63, 62, 32, 999])
def test_an_xid_that_shows_no_fault_of_today_makes_a_node_odd_and_no_more(number: int) -> None:
    """63: a row was remapped, which gpu_ecc looks at. The others may be of a program."""
    answer = witnesses.judge_xids([*KERNEL, XID % 31, XID % number])
    assert (answer["outcome"], answer["why"]) == ("ok", f"since boot: Xid {number} on 0000:4e:00")
    assert answer["facts"]["odd"] is True


def test_one_xid_of_the_hardware_among_others_fails_the_node_and_is_named_alone() -> None:
    answer = witnesses.judge_xids([*KERNEL, XID % 63, XID % 48])
    assert (answer["outcome"], answer["why"]) == ("failed", "since boot: Xid 48 on 0000:4e:00")


def test_checks_and_logs_read_each_xid_alike() -> None:
    """What runs on nodes imports nothing of `core`, so the classes of Xids stand twice."""
    readings = {rule.id: rule for rule in gpu_rules.RULES if rule.id.startswith("gpu.xid_")}
    for number in range(1, 300):
        outcome = witnesses.judge_xids([*KERNEL, XID % number])
        line = (XID % number).encode()
        of = {name for name, rule in readings.items() if re.search(rule.pattern, line)}
        assert (outcome["outcome"] == "failed") == ("gpu.xid_hardware" in of), number
        is_clear = outcome["outcome"] == "ok" and not outcome["facts"].get("odd")
        assert is_clear == bool(of & {"gpu.xid_program", "gpu.xid_aftermath"}), number


def test_a_kernel_log_that_begins_late_says_how_far_back_it_goes() -> None:
    late = ["6,5000,3600000000,-;nvidia: loaded", "6,9000,18000000000,-;usb 1-1: new device"]
    assert witnesses.judge_xids(late)["why"] == "no Xid in the last 4 h of the kernel's log"


def test_watches_of_dcgm_that_nobody_has_set_are_no_fault(node: MadeNode) -> None:
    node.program("dcgmi", "Error: Health watches not enabled. Please enable watches.\n", 226)
    assert node.check("dcgm", level="light")["outcome"] == "skipped"


def test_nhc_is_told_to_drain_nothing(node: MadeNode) -> None:
    node.program("nhc", by=f'printf "%s\\n" "$@" >{node.folder}/words')
    assert node.check("nhc")["outcome"] == "ok"
    assert "MARK_OFFLINE=0" in (node.folder / "words").read_text().splitlines()


def test_a_counter_that_grows_between_two_looks_fails() -> None:
    def port(errors: int) -> dict[str, dict[str, object]]:
        return {"mlx5_0/1": {"state": "ACTIVE", "physical": "LinkUp", "rate": "200 Gb/sec (4X HDR)",
                             "layer": "InfiniBand", "errors": {"symbol_error": errors}}}

    assert network.judge_ports(port(5), port(5))["outcome"] == "ok"
    assert network.judge_ports(port(5), port(9))["why"] == "symbol_error of mlx5_0/1 rose from 5 to 9"
    assert network.judge_ports({**port(5), "mlx5_1/1": port(5)["mlx5_0/1"]}, port(5))["why"] == "mlx5_1/1 is gone"


def test_a_port_that_is_half_up_fails_and_one_without_a_cable_does_not(node: MadeNode) -> None:
    node.patch.setattr(network, "BETWEEN_S", 0.0)
    node.port("mlx5_0")
    node.port("mlx5_1", state="1: DOWN", phys_state="3: Disabled")
    assert node.check("infiniband")["why"] == "1 of 2 ports active: 200 Gb/sec (4X HDR)"
    node.port("mlx5_2", state="2: INIT")
    assert node.check("infiniband")["why"] == "mlx5_2/1 is INIT"


@pytest.mark.parametrize(("check", "program", "words"), [
    ("gpu_burn", "gpu_burn", {}), ("gpu_alone", "python", {"level": "isolate"}),
    ("gpu_together", "python", {"level": "isolate", "gpus": 8})], ids=str)
def test_nothing_heavy_runs_beside_a_process_on_a_gpu(
    node: MadeNode, check: str, program: str, words: dict[str, Any]
) -> None:
    node.gpus(H100.replace("\t\t</processes>", PROCESS))
    node.program(program, by=f"touch {node.folder}/ran")
    answer = node.check(check, **words)
    assert (answer["outcome"], "process" in answer["why"]) == ("skipped", True), answer
    assert not (node.folder / "ran").exists()


def test_a_heavy_tool_that_hangs_fails_and_one_that_breaks_is_unknown(
    node: MadeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.gpus()
    node.program("gpu_burn", "Couldn't init a GPU test: Error in load module", 1)
    answer = node.check("gpu_burn")
    assert (answer["outcome"], "exit code 1" in answer["why"]) == ("unknown", True)
    for source in table.SOURCES:
        monkeypatch.setattr(source, "deadline_s", min(source.deadline_s, 2.0 if source.is_heavy else 20.0))
    node.program("all_reduce_perf", by="exec sleep 600")
    assert node.check("nccl_tests")["why"] == "all_reduce_perf gave no answer in time"
