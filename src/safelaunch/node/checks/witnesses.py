"""Further witnesses: Xids in the kernel's log, DCGM, LBNL's NHC, gpu-burn, nccl-tests. Standard library, Python 3.9."""

from __future__ import annotations

import os
import re

from safelaunch.node.checks.answer import FULL, failed, ok, skipped, unknown
from safelaunch.node.checks.gpu import NO_GPU

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Optional

    from safelaunch.node.checks.answer import CheckRequest
    from safelaunch.node.children import Outcome

KMSG = "/dev/kmsg"
MOST_RECORDS = 200_000
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]{4,20})(?: GPU-I:\d{1,3})?\): (\d{1,4})")
# NVIDIA's Xid Errors guide; the same as why/rules/machine/gpu.py: broken hardware; what a program does to itself, and
# what follows from it. Any other may be of either kind, or tell of what is mended (63: a row was remapped).
_OF_HARDWARE = frozenset((48, 64, 74, 79, 92, 94, 95, 110, 119, 120, 121, 122, 123, 124, 125, 126, 136, 140, 143, 144,
                          145, 146, 147, 148, 149, 150, 154, 155, 156))
_OF_PROGRAMS = frozenset((13, 31, 43, 44, 45, 47, 68, 80))
_RECORD = re.compile(r"^\d{1,10},(\d{1,20}),(\d{1,20}),[^;]{0,40};")   # Documentation/ABI/testing/dev-kmsg
_NHC_FAILED = re.compile(r"Health check failed:\s{1,8}(.{1,300})")


def check_xid(request: CheckRequest, item: str) -> dict[str, Any]:
    """Xids since boot, as far back as the kernel's log goes."""
    try:
        records = read_kmsg(KMSG)
    except PermissionError:   # kernel.dmesg_restrict
        return unknown("this user may not read the kernel's log")
    except OSError as error:
        return unknown("the kernel's log cannot be read: %s" % error.strerror)
    return judge_xids(records)


def read_kmsg(path: str) -> list[str]:
    """The records of the kernel's log; one a read. Raises OSError where it cannot be opened."""
    records: list[str] = []
    log = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while len(records) < MOST_RECORDS:
            try:
                data = os.read(log, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:   # it was overwritten since the last read
                continue
            if not data:
                break
            records += data.decode(errors="replace").splitlines()
    finally:
        os.close(log)
    return records


def judge_xids(records: Sequence[str]) -> dict[str, Any]:
    """The same of records of /dev/kmsg: "6,339,5140900,-;NVRM: Xid (PCI:0000:4e:00): 79, …"."""
    heads = [match for match in map(_RECORD.match, records) if match]
    if not heads:
        return unknown("the kernel's log is empty")
    found = [(match.group(1), int(match.group(2))) for match in map(_XID.search, records) if match]
    is_whole = heads[0].group(1) == "0"
    since = "since boot" if is_whole else "in the last %d h of the kernel's log" % (
        (int(heads[-1].group(2)) - int(heads[0].group(2))) // 3_600_000_000)
    facts = {"xids": [[place, number] for place, number in found[-32:]], "since_boot": is_whole}
    bad = [one for one in found if one[1] in _OF_HARDWARE]
    unsure = [one for one in found if one[1] not in _OF_PROGRAMS]
    if bad or unsure:
        said = "%s: %s" % (since, ", ".join(dict.fromkeys("Xid %d on %s" % (number, place)
                                                          for place, number in bad or unsure)))
        return failed(said, **facts) if bad else ok(said, odd=True, **facts)
    if not found and not any("NVRM:" in record or "nvidia" in record for record in records):
        return skipped("%s, or its driver has said nothing" % NO_GPU)
    programs = " but %d of programs' own faults" % len(found) if found else ""
    return ok("no Xid %s%s" % (since, programs), **facts)


def dcgmi_words(request: CheckRequest) -> list[str]:
    """A short test at the level full; else what DCGM's daemon has watched, which takes no time."""
    return ["dcgmi", "diag", "-r", "1"] if request.level == FULL else ["dcgmi", "health", "-c"]


def check_dcgm(request: CheckRequest, heard: Mapping[str, Outcome]) -> dict[str, Any]:
    """What DCGM says of the GPUs, where it is installed and its daemon runs."""
    outcome = heard["dcgmi"]
    if outcome.late:
        return unknown("dcgmi gave no answer in time")
    if outcome.code == 127:
        return skipped("dcgmi is not installed")
    said = (outcome.text + " " + outcome.said).strip()
    rows = read_table(outcome.text)
    bad = ["%s: %s" % (name, value) for name, value in rows if re.match(r"(?i)fail|warn|error|unhealthy", value)]
    if bad:
        return failed("; ".join([*bad, *(value for name, value in rows if not name and value)]))
    good = [name for name, value in rows if value in ("Pass", "Healthy")]
    if good:
        return ok("%s: well" % ", ".join(good[:12]))
    # No daemon, no watches, no right to ask: it says nothing about the GPUs.
    return skipped("dcgmi tells nothing: %s" % " ".join(said.split())[:200])


def read_table(text: str) -> list[tuple[str, str]]:
    """(name, value) of the rows of a table that dcgmi draws: "| Inforom      | Pass        |"; a row without a name
    explains the one above it.
    """
    rows = []
    for line in text[:1 << 20].splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.lstrip().startswith("|") and len(cells) == 2 and not cells[0].startswith("--"):
            rows.append((cells[0].lstrip("-> ")[:80], cells[1][:200]))
    return rows


def nhc_words(request: CheckRequest) -> list[str]:
    """The site's own checks. MARK_OFFLINE=0: NHC would drain the node by itself, which is the site's to decide."""
    return ["nhc", "-l", "-", "MARK_OFFLINE=0", "DETACHED_MODE=0"]


def check_nhc(request: CheckRequest, heard: Mapping[str, Outcome]) -> dict[str, Any]:
    """What NHC says of the node, where the site has installed it."""
    outcome = heard["nhc"]
    if outcome.late:
        return unknown("nhc gave no answer in time")
    if outcome.code == 127:
        return skipped("nhc is not installed")
    said = outcome.text + "\n" + outcome.err.decode(errors="replace")
    found = _NHC_FAILED.findall(said)
    if found:
        return failed("; ".join(dict.fromkeys(" ".join(one.split()) for one in found)))
    if outcome.code == 0:
        return ok("passed")
    return unknown("nhc ended with exit code %s: %s" % (outcome.code, " ".join(said.split())[:200]))   # not a user's


def burn_words(request: CheckRequest) -> list[str]:
    """Products of matrices on all GPUs for 15 s, compared with each other."""
    return ["gpu_burn", "15"]


def check_burn(request: CheckRequest, heard: Mapping[str, Outcome]) -> dict[str, Any]:
    """What gpu-burn says of each GPU: "GPU 0: OK"."""
    outcome, why_not = _heavy(heard, "gpu_burn", "gpu_burn")
    if outcome is None or why_not is not None:
        return why_not or unknown("gpu_burn was not asked")
    found = re.findall(r"(?m)^[ \t]{0,20}GPU (\d{1,4}): (OK|FAULTY)", outcome.text)
    bad = [number for number, word in found if word == "FAULTY"]
    if bad:
        return failed("wrong results on GPU %s" % ", ".join(bad))
    return ok("%d GPUs: no wrong result" % len(found)) if found else _said_nothing("gpu_burn", outcome)


def nccl_words(request: CheckRequest) -> list[str]:
    """An all-reduce of 64 MB among the GPUs of the node, its results compared (nccl-tests)."""
    return ["all_reduce_perf", "-b", "64M", "-e", "64M", "-n", "5", "-g", str(max(1, request.gpus or 1))]


def check_nccl(request: CheckRequest, heard: Mapping[str, Outcome]) -> dict[str, Any]:
    """nccl-tests' word on the GPUs of the node."""
    outcome, why_not = _heavy(heard, "nccl_tests", "all_reduce_perf")
    if outcome is None or why_not is not None:
        return why_not or unknown("all_reduce_perf was not asked")
    wrong = re.search(r"(?m)^#\s*Out of bounds values\s*:\s*(\d{1,12}) (\w{1,9})", outcome.text)
    rate = re.search(r"(?m)^#\s*Avg bus bandwidth\s*:\s*(\d{1,9}(?:\.\d{1,9})?)", outcome.text)
    broken = re.search(r"Test NCCL failure [^\n]{1,200}", outcome.text + "\n" + outcome.err.decode(errors="replace"))
    if broken:
        return failed(" ".join(broken.group().split()))
    if wrong and wrong.group(2) != "OK":
        return failed("%s wrong values" % wrong.group(1))
    if not wrong or not rate:
        return _said_nothing("all_reduce_perf", outcome)
    return ok("%s GB/s bus bandwidth" % rate.group(1), bus_gb_s=float(rate.group(1)))


def _heavy(heard: Mapping[str, Outcome], name: str, program: str) -> tuple[Optional[Outcome], Optional[dict[str, Any]]]:
    """(what it said, None), or (perhaps that, why there is nothing to judge)."""
    outcome = heard.get(name)
    if outcome is None:
        return None, skipped("%s, or a process uses one" % NO_GPU)
    if outcome.code == 127:
        return outcome, skipped("%s is not installed" % program)
    if outcome.had_no_time:
        return outcome, unknown("no time was left for it")
    return outcome, failed("%s gave no answer in time" % program) if outcome.late else None


def _said_nothing(program: str, outcome: Outcome) -> dict[str, Any]:
    said = outcome.said or " ".join(outcome.text.split())[-200:]
    return unknown("%s ended with exit code %s: %s" % (program, outcome.code, said))
