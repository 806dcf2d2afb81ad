"""What nvidia-smi and rocm-smi print, as plain facts: text in, values out. Standard library, Python 3.9.

Source of the forms: `nvidia-smi -q -x` (nvsmi_device_v11 to v13), `nvidia-smi nvlink --status`, `rocm-smi --json`.
"""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional
    from xml.etree.ElementTree import Element

MOST_GPUS = 256
# From driver 570 on.
_REPAIRS = {"channel_repair_pending": "a repair of a memory channel waits for a reset",
            "tpc_repair_pending": "a repair of a TPC waits for a reset",
            "unrepairable_memory": "memory cannot be repaired"}
_GPU_LINE = re.compile(r"^GPU (\d{1,4}): (.{0,200})$")
_LINK_LINE = re.compile(r"^\s{1,16}Link (\d{1,3}): (.{1,80})$")


def parse_log(text: str) -> Optional[dict[str, Any]]:
    """{"driver", "cuda", "gpus": [facts of one]} of `nvidia-smi -q -x`; None = it is no such text. A value that is
    not there, or "N/A", is None.
    """
    from xml.etree import ElementTree

    if "<!ENTITY" in text:   # nvidia-smi writes none: one that doubles itself would fill the memory
        return None
    try:   # warnings stand before and after it
        log = ElementTree.fromstring(text[text.find("<"):text.rfind(">") + 1])  # noqa: S314 - see above
    except (ElementTree.ParseError, ValueError):
        return None
    if log.tag != "nvidia_smi_log":
        return None
    return {"driver": _text(log, "driver_version"), "cuda": _text(log, "cuda_version"),
            "gpus": [_gpu(gpu, index) for index, gpu in enumerate(log.findall("gpu")[:MOST_GPUS])]}


def _gpu(gpu: Element, index: int) -> dict[str, Any]:
    volatile, aggregate = (_uncorrectable(gpu.find("ecc_errors/" + kind)) for kind in ("volatile", "aggregate"))
    width = "pci/pci_gpu_link_info/link_widths/"
    return {
        "index": index, "id": str(gpu.get("id", ""))[:40],
        "model": _text(gpu, "product_name"), "uuid": _text(gpu, "uuid"),
        "mem_mb": _number(gpu, "fb_memory_usage/total"), "used_mb": _number(gpu, "fb_memory_usage/used"),
        "ecc_volatile": volatile, "ecc_aggregate": aggregate,
        "remapped": _number(gpu, "remapped_rows/remapped_row_unc"),
        "remap_pending": _yes(gpu, "remapped_rows/remapped_row_pending"),
        "remap_failed": _yes(gpu, "remapped_rows/remapped_row_failure"),
        "retire_pending": _yes(gpu, "retired_pages/pending_retirement"),
        "repairs": [words for key, words in _REPAIRS.items() if _is_due(_text(gpu, "ecc_errors/" + key))],
        "slowed_by": _slowed_by(gpu), "sm_mhz": _number(gpu, "clocks/sm_clock"),
        "sm_max_mhz": _number(gpu, "max_clocks/sm_clock"), "temp_c": _number(gpu, "temperature/gpu_temp"),
        "pcie_width": _number(gpu, width + "current_link_width"),
        "pcie_width_max": _number(gpu, width + "max_link_width"),
        "recovery": _text(gpu, "gpu_recovery_action"), "processes": _processes(gpu), "parts": _parts(gpu)}


def _parts(gpu: Element) -> Optional[int]:
    """The parts of a divided GPU (MIG) that this process sees; None = it is whole."""
    return len(gpu.findall("mig_devices/mig_device")) if _text(gpu, "mig_mode/current_mig") == "Enabled" else None


def _text(place: Element, path: str) -> Optional[str]:
    found = (place.findtext(path) or "").strip()[:200]
    return None if found in ("", "N/A", "[N/A]", "Not Supported") else found


def _number(place: Element, path: str) -> Optional[int]:
    """81559 of "81559 MiB", 16 of "16x"; None of "N/A", "Unknown Error", "ERR!"."""
    match = re.match(r"(\d{1,15})(?:\.\d{1,9})?\s?(?:[A-Za-z%/]{0,8})$", _text(place, path) or "")
    return int(match.group(1)) if match else None


def _yes(place: Element, path: str) -> Optional[bool]:
    return {"Yes": True, "No": False}.get(_text(place, path) or "")


def _is_due(word: Optional[str]) -> bool:
    """"Yes", or what is told of a GPU that says no more: "GPU requires reset"."""
    return word is not None and (word == "Yes" or "reset" in word)


def _uncorrectable(place: Optional[Element]) -> Optional[int]:
    """Errors that ECC could not mend; None = not counted here. V100 and older count them as double_bit."""
    if place is None:
        return None
    tags = [one.tag for one in place if "uncorrectable" in one.tag] or ["double_bit/total"]
    counts = [count for count in (_number(place, tag) for tag in tags) if count is not None]
    return sum(counts) if counts else None


def _slowed_by(gpu: Element) -> Optional[list[str]]:
    """Active reasons for lower clocks, as "hw_thermal_slowdown"; drivers before 535 call them throttle reasons."""
    for group, prefix in (("clocks_event_reasons", "clocks_event_reason_"),
                          ("clocks_throttle_reasons", "clocks_throttle_reason_")):
        place = gpu.find(group)
        if place is not None:
            return [one.tag[len(prefix):] for one in place
                    if one.tag.startswith(prefix) and (one.text or "").strip() == "Active"]
    return None


def _processes(gpu: Element) -> list[dict[str, Any]]:
    """Compute processes only: a display's are no leftovers."""
    rows = []
    for one in gpu.findall("processes/process_info")[:64]:
        pid = _number(one, "pid")
        if pid is not None and "C" in (_text(one, "type") or "C"):
            rows.append({"pid": pid, "name": _text(one, "process_name"), "used_mb": _number(one, "used_memory")})
    return rows


def parse_links(text: str) -> dict[str, dict[str, int]]:
    """GPU's number → {"up", "down"} of `nvidia-smi nvlink --status`: "Link 0: 26.562 GB/s" or "<inactive>"."""
    found: dict[str, dict[str, int]] = {}
    links: dict[str, int] = {}
    for line in text.splitlines():
        gpu, link = _GPU_LINE.match(line), _LINK_LINE.match(line.replace("\t", "    "))
        if gpu:
            links = found.setdefault(gpu.group(1), {"up": 0, "down": 0})
        elif link and found:
            links["up" if "GB/s" in link.group(2) else "down"] += 1
    return {gpu: counts for gpu, counts in found.items() if counts["up"] or counts["down"]}


def parse_rocm(text: str) -> Optional[dict[str, Any]]:
    """As parse_log of `rocm-smi --showproductname --showdriverversion --showmeminfo vram --json`; None = no such text.
    The keys' spelling differs by release: "Card series", "Card Series".
    """
    try:
        told = json.loads(text[text.find("{"):])
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict):
        return None
    cards = {name: {str(key).lower(): str(value) for key, value in card.items()} for name, card in told.items()
             if isinstance(card, dict)}
    gpus = [{"id": name, "model": card.get("card series") or card.get("card model") or None, "uuid": None,
             "mem_mb": _mb(card.get("vram total memory (b)", "")),
             "used_mb": _mb(card.get("vram total used memory (b)", ""))}
            for name, card in cards.items() if re.match(r"card\d{1,3}$", name)]
    return {"driver": cards.get("system", {}).get("driver version"), "cuda": None, "gpus": gpus[:MOST_GPUS]}


def _mb(text: str) -> Optional[int]:
    return int(text) >> 20 if re.match(r"\d{1,15}$", text) else None
