"""GPUs, by what nvidia-smi or rocm-smi said: number, model, driver, ECC, clocks, links, memory, leftovers.

One question to the tool serves all of these: each call takes it a second and more. Where it fails, the number of GPUs
says so, and the other checks are unknown. Standard library, Python 3.9.
"""

from __future__ import annotations

import os
import re

from safelaunch.node.checks import smi
from safelaunch.node.checks.answer import failed, ok, skipped, unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Optional

    from safelaunch.node.checks.answer import CheckRequest
    from safelaunch.node.children import Outcome

    Gpus = Sequence[Mapping[str, Any]]

PCI = "/sys/bus/pci/devices"
NO_GPU = "no GPU"
DIVIDED = "others may use parts of these GPUs (MIG)"
MOST_USED_MB = 2048     # a CUDA context holds some hundred MB; what training leaves behind holds gigabytes
# NVML: nvmlClocksEventReasons. Power caps and idle clocks are a GPU's ordinary life.
_SLOWING = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
_NO_DEVICES = "No devices were found"
_WELL = (0, 14)         # nvidia-smi(1), RETURN VALUE: 14 = an infoROM is corrupted, which ends no training
# tool → (PCI vendor of the cards, words of the tool where its driver is not loaded)
_DRIVERS = {"nvidia-smi": ("0x10de", ("couldn't communicate with the NVIDIA driver", "Driver Not Loaded")),
            "rocm-smi": ("0x1002", ("Driver not initialized", "amdgpu not found"))}


class SeenGpus:
    """What is known of the GPUs: `told` by the tool, else `trouble` (with it, or before it was asked), else there is
    none.
    """

    def __init__(self, told: Optional[dict[str, Any]], trouble: str = "", maker: str = "",
                 is_asked: bool = True) -> None:
        self.told, self.trouble, self.maker, self.is_asked = told, trouble, maker, is_asked

    @property
    def gpus(self) -> Gpus:
        return [] if self.told is None else self.told["gpus"]

    def why_not(self) -> Optional[dict[str, Any]]:
        """The answer of a check that has nothing to look at; None = there are GPUs."""
        if self.trouble:
            return unknown(self.trouble)
        return None if self.gpus else skipped(NO_GPU)


def read_seen(heard: Mapping[str, Outcome]) -> SeenGpus:
    """The GPUs by nvidia-smi, else by rocm-smi; of several those that this job may use."""
    nvidia = _read_tool(heard["smi"], "nvidia-smi", smi.parse_log)
    if nvidia.told is not None:
        nvidia.told["gpus"] = _own(nvidia.told["gpus"], os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    return nvidia if nvidia.gpus or nvidia.trouble else _read_tool(heard["rocm"], "rocm-smi", smi.parse_rocm)


def _own(gpus: Gpus, visible: str) -> Gpus:
    """Those that CUDA_VISIBLE_DEVICES names. Where Slurm keeps no job from the GPUs of others, nvidia-smi shows all."""
    own = []
    for word in visible.split(","):
        named = [gpu for gpu in gpus if word == str(gpu["index"]) or (
            word.startswith("GPU-") and str(gpu["uuid"]).startswith(word))]
        if len(named) != 1:   # a part of one, none, or a list that is not understood
            return gpus
        own += named
    return own


def _read_tool(outcome: Outcome, name: str, parse: Any) -> SeenGpus:
    if outcome.had_no_time:
        return SeenGpus(None, "no time was left for %s" % name, is_asked=False)
    if outcome.late:
        return SeenGpus(None, "%s gave no answer in time: a GPU that fell off the bus does that" % name)
    words, (vendor, no_driver) = outcome.text + outcome.said, _DRIVERS[name]
    if outcome.code == 127 or _NO_DEVICES in words:
        return SeenGpus(None)   # not installed, or this job was given none
    if any(word in words for word in no_driver) and not has_card(PCI, vendor):
        return SeenGpus(None)   # a login node with the tool of the others
    told = parse(outcome.text) if outcome.code in _WELL else None
    if told is None:
        lines = [line for line in outcome.text.strip().splitlines() if not line.lstrip().startswith("<")]
        said = outcome.said or " ".join(lines[-4:]) or "exit code %s" % outcome.code
        return SeenGpus(None, "%s: %s" % (name, said[:200]))
    return SeenGpus(told, maker=name.partition("-")[0])


def has_card(root: str, vendor: str) -> bool:
    """Whether the PCI bus has a display or 3D controller of this vendor (class 0x03…), or an accelerator (0x12…)."""
    try:
        devices = os.listdir(root)
    except OSError:
        return False
    return any(_word(root, device, "vendor") == vendor and _word(root, device, "class").startswith(("0x03", "0x12"))
               for device in devices)


def _word(root: str, device: str, name: str) -> str:
    try:
        with open(os.path.join(root, device, name)) as file:
            return file.read(64).strip()
    except (OSError, ValueError):
        return ""


def check_count(request: CheckRequest, heard: Mapping[str, Outcome]) -> dict[str, Any]:
    """The number of GPUs against what was asked."""
    seen = read_seen(heard)
    found = sum(1 if gpu.get("parts") is None else gpu["parts"] for gpu in seen.gpus)
    divided = " of %s (MIG)" % _count(len(seen.gpus)) if _is_divided(seen.gpus) else ""
    words = "%d part%s%s" % (found, "" if found == 1 else "s", divided) if divided else _count(found)
    if seen.trouble:
        return failed(seen.trouble) if seen.is_asked else unknown(seen.trouble)
    if request.gpus is not None and found != request.gpus:
        answer = unknown if divided else failed   # whose the parts are is not told
        return answer("%s, %d asked" % (words, request.gpus), count=found)
    lost = [gpu["id"] for gpu in seen.gpus if gpu.get("recovery") not in (None, "None")]
    if lost:
        return failed("the driver asks for a reset or reboot: %s" % ", ".join(lost), count=found)
    return ok(words, count=found) if seen.gpus else skipped(NO_GPU)


def _is_divided(gpus: Gpus) -> bool:
    return any(gpu.get("parts") is not None for gpu in gpus)


def _count(number: int) -> str:
    return "%d GPU%s" % (number, "" if number == 1 else "s")


def check_model(request: CheckRequest, heard: Mapping[str, Outcome]) -> dict[str, Any]:
    """The models: all the same, and what was asked."""
    seen = read_seen(heard)
    models = sorted({str(gpu["model"]) for gpu in seen.gpus if gpu["model"]})
    if seen.gpus and not models:
        return unknown("no GPU tells its model")
    if not seen.gpus:
        return seen.why_not() or skipped(NO_GPU)
    facts = {"model": ", ".join(models)[:200]}
    if len(models) > 1:
        return failed("several models: %s" % facts["model"], **facts)
    if not is_of_type(models[0], request.gpu_model):
        return failed("%s, %s asked" % (models[0], request.gpu_model), **facts)
    return ok(models[0], **facts)


def is_of_type(model: str, asked: str) -> bool:
    """Whether a model's name, "NVIDIA A100-SXM4-80GB", has the product in a site's word for it: a100, a100l, a100_80.
    A word without one, such as large or 1g.5gb, fits all: sites name their types freely (gres.conf(5), Type).
    """
    product = re.search("(?<![a-z])[a-z]+[0-9]+|[0-9]{3,}", asked.lower())
    if product is None:
        return True
    name = "[^a-z0-9]*".join(product.group())   # rtx8000 is "Quadro RTX 8000"
    return re.search("(?<![a-z0-9])%s(?![0-9])" % name, model.lower()) is not None


def check_driver(request: CheckRequest, heard: Mapping[str, Outcome]) -> dict[str, Any]:
    """The versions of driver and CUDA, for the comparison between nodes."""
    seen = read_seen(heard)
    if seen.told is None or not seen.gpus:
        return seen.why_not() or skipped(NO_GPU)
    driver, cuda = seen.told["driver"], seen.told["cuda"]
    if driver is None:
        return unknown("the driver's version is not told")
    return ok("driver %s" % driver + (", CUDA %s" % cuda if cuda else ""), driver=driver, cuda=cuda)


def check_ecc(request: CheckRequest, heard: Mapping[str, Outcome]) -> dict[str, Any]:
    """Uncorrectable memory errors since the driver was loaded; repairs that wait for a reset, or failed. A row remap
    that waits makes the node odd, no more.
    """
    nvidia, why_not = _nvidia(heard)
    if why_not is not None:
        return why_not
    counted = [gpu for gpu in nvidia if gpu["ecc_volatile"] is not None or gpu["remap_pending"] is not None
               or gpu["repairs"]]
    if not counted:
        return skipped("no ECC on these GPUs")
    facts = {"uncorrectable": sum(gpu["ecc_volatile"] or 0 for gpu in counted),
             "uncorrectable_ever": sum(gpu["ecc_aggregate"] or 0 for gpu in counted),
             "remapped_rows": sum(gpu["remapped"] or 0 for gpu in counted)}
    wrong = ["%s: %d uncorrectable errors" % (gpu["id"], gpu["ecc_volatile"]) for gpu in counted if gpu["ecc_volatile"]]
    for key, words in (("remap_failed", "a row remap failed"),
                       ("retire_pending", "a page retirement waits for a reset")):
        wrong += ["%s: %s" % (gpu["id"], words) for gpu in nvidia if gpu[key]]
    wrong += ["%s: %s" % (gpu["id"], words) for gpu in nvidia for words in gpu["repairs"]]
    # The driver uses that memory no more, and new work is not affected: NVML, nvmlDeviceGetRemappedRows.
    waiting = ["%s: a row remap waits for a reset" % gpu["id"] for gpu in counted if gpu["remap_pending"]]
    if wrong:
        return failed("; ".join(wrong + waiting), **facts)
    return ok("; ".join(waiting) or "no uncorrectable error", odd=bool(waiting), **facts)


def check_clocks(request: CheckRequest, heard: Mapping[str, Outcome]) -> dict[str, Any]:
    """Whether heat or power slows a GPU down now; the clocks themselves are low on any idle GPU."""
    nvidia, why_not = _nvidia(heard)
    if why_not is not None:
        return why_not
    told = [gpu for gpu in nvidia if gpu["slowed_by"] is not None]
    if not told:
        return unknown("no GPU tells what slows it down")
    facts = {"sm_mhz": [gpu["sm_mhz"] for gpu in told], "sm_max_mhz": [gpu["sm_max_mhz"] for gpu in told],
             "temp_c": [gpu["temp_c"] for gpu in told]}
    slow = ["%s: %s at %s C" % (gpu["id"], ", ".join(why), gpu["temp_c"]) for gpu in told
            for why in [[one for one in gpu["slowed_by"] if one in _SLOWING]] if why]
    return failed("; ".join(slow), **facts) if slow else ok("nothing slows them down", **facts)


def check_pcie(request: CheckRequest, heard: Mapping[str, Outcome]) -> dict[str, Any]:
    """The width of each PCIe link; its generation is lower on any idle GPU."""
    nvidia, why_not = _nvidia(heard)
    if why_not is not None:
        return why_not
    told = [gpu for gpu in nvidia if gpu["pcie_width"] and gpu["pcie_width_max"]]
    if not told:
        return unknown("no GPU tells its PCIe width")
    facts = {"widths": [gpu["pcie_width"] for gpu in told]}
    narrow = ["%s: x%d of x%d" % (gpu["id"], gpu["pcie_width"], gpu["pcie_width_max"]) for gpu in told
              if gpu["pcie_width"] < gpu["pcie_width_max"]]
    return failed("; ".join(narrow), **facts) if narrow else ok("all at their full width", **facts)


def check_nvlink(request: CheckRequest, heard: Mapping[str, Outcome]) -> dict[str, Any]:
    """The links of each GPU: all that it has are to be up, and as many as on its neighbours."""
    nvidia, why_not = _nvidia(heard)
    if why_not is not None:
        return why_not
    outcome = heard["nvlink"]
    if outcome.late:
        return unknown("nvidia-smi nvlink gave no answer in time")
    own = {str(gpu["index"]) for gpu in nvidia}
    links = {gpu: one for gpu, one in smi.parse_links(outcome.text).items() if gpu in own}
    if not links or not any(one["up"] for one in links.values()):
        return skipped("no NVLink")
    most = max(one["up"] for one in links.values())
    facts = {"up": [one["up"] for one in links.values()], "down": [one["down"] for one in links.values()]}
    wrong = ["GPU %s: %d of %d links are up" % (gpu, one["up"], max(most, one["up"] + one["down"]))
             for gpu, one in links.items() if one["down"] or one["up"] < most]
    return failed("; ".join(wrong), **facts) if wrong else ok("%d links up on each GPU" % most, **facts)


def check_memory(request: CheckRequest, heard: Mapping[str, Outcome]) -> dict[str, Any]:
    """Free memory of each GPU."""
    seen = read_seen(heard)
    if not seen.gpus:
        return seen.why_not() or skipped(NO_GPU)
    if _is_divided(seen.gpus):
        return skipped(DIVIDED)
    told = [gpu for gpu in seen.gpus if gpu["used_mb"] is not None]
    if not told:
        return unknown("no GPU tells how much of its memory is used")
    facts = {"used_mb": [gpu["used_mb"] for gpu in told]}
    used = ["%s: %d of %s MB are used" % (gpu["id"], gpu["used_mb"], gpu["mem_mb"]) for gpu in told
            if gpu["used_mb"] > MOST_USED_MB]
    return failed("; ".join(used), **facts) if used else ok("at most %d MB used" % max(facts["used_mb"]), **facts)


def check_leftovers(request: CheckRequest, heard: Mapping[str, Outcome]) -> dict[str, Any]:
    """Compute processes on the GPUs: before a training there should be none."""
    nvidia, why_not = _nvidia(heard)
    if why_not is not None:
        return why_not
    if _is_divided(nvidia):
        return skipped(DIVIDED)
    rows = [(gpu["id"], one) for gpu in nvidia for one in gpu["processes"]]
    if not rows:
        return ok("none")
    said = ["pid %d (%s) on %s" % (one["pid"], one["name"] or "name not told", gpu) for gpu, one in rows[:8]]
    return failed("; ".join(said), pids=sorted({one["pid"] for _, one in rows}))


def _nvidia(heard: Mapping[str, Outcome]) -> tuple[Gpus, Optional[dict[str, Any]]]:
    """(the NVIDIA GPUs, None), or (none, the answer of the check)."""
    seen = read_seen(heard)
    if seen.gpus and seen.maker != "nvidia":
        return [], skipped("not looked at on AMD GPUs")
    return seen.gpus, seen.why_not()
