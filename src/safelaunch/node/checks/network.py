"""Network: a port that is to be free, names, the clock's time service, InfiniBand and RoCE ports.

Standard library, Python 3.9.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time

from safelaunch.node.checks.answer import failed, ok, skipped, unknown
from safelaunch.node.porttrial import PortTrial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Optional

    from safelaunch.node.checks.answer import CheckRequest, Meeting

INFINIBAND = "/sys/class/infiniband"
BETWEEN_S = 1.0
REACH_S = 4.0            # a lost SYN is sent again after 1 s and 3 s (tcp(7))
LISTEN_S = 3.0           # of the meeting's node: helpers of many nodes do not start at once
RETRY_S = 0.1
MOST_CLOCK_S = 1.0      # logs of several nodes are put in order by their clocks
_STA_UNSYNC = 0x40      # linux/timex.h
# Kernel: Documentation/ABI/stable/sysfs-class-infiniband. Each counts faults of cable, port or partner.
_ERRORS = ("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_rcv_remote_physical_errors",
           "local_link_integrity_errors", "excessive_buffer_overrun_errors")


def check_port(request: CheckRequest, item: str) -> dict[str, Any]:
    """Whether the port can be listened on, on all addresses; or whether another node's can be reached."""
    meeting = request.meeting
    if request.port is None:
        if meeting is None:
            return skipped("no port was asked for")
        if meeting.node != request.node:
            return _reach(meeting, time.monotonic() + min(REACH_S, request.deadline_s / 2))
        why = "the other nodes try port %d of this one" % meeting.port
        if not meeting.listens:
            return skipped(why)
        return _be_reached(meeting.port, why, min(LISTEN_S, request.deadline_s / 2))
    try:
        PortTrial(request.port).close()
    except OSError as error:
        return failed("port %d: %s" % (request.port, os.strerror(error.errno or 0)), port=request.port)
    return ok("port %d is free" % request.port, port=request.port)


def _be_reached(port: int, why: str, for_s: float) -> dict[str, Any]:
    """Let the other nodes connect. A port that is taken says nothing of the node: the attempt gets another."""
    try:
        with contextlib.closing(PortTrial(port)) as trial:
            trial.take(for_s)
    except OSError as error:
        why = os.strerror(error.errno or 0)
        return skipped("port %d is not used: %s" % (port, why), port=port, listened=False)
    return skipped(why, port=port, listened=True)


def _reach(meeting: Meeting, until_s: float) -> dict[str, Any]:
    """Connect to it. A node that listens for its check alone may begin later: what is refused is tried until then."""
    where = "port %d of %s" % (meeting.port, meeting.node)
    while True:
        try:
            with socket.create_connection((meeting.address, meeting.port), timeout=REACH_S) as probe:
                # Closed by a reset: neither end keeps the port in TIME_WAIT.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return ok("%s can be reached" % where, port=meeting.port)
        except socket.gaierror as error:
            if error.errno == socket.EAI_AGAIN:
                return unknown("%s: the name service does not answer: %s" % (where, error.strerror))
            why = error.strerror
        except (OSError, UnicodeError) as error:
            if meeting.listens and isinstance(error, ConnectionRefusedError):
                if time.monotonic() >= until_s:
                    return unknown("%s: it was not listened on when it was tried" % where)
                time.sleep(RETRY_S)
                continue
            why = getattr(error, "strerror", None) or str(error)
        return failed("%s cannot be reached: %s" % (where, why), port=meeting.port)


def check_name(request: CheckRequest, name: str) -> dict[str, Any]:
    """Addresses of a host's name."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            return unknown("the name service does not answer: %s" % error.strerror)
        return failed("%s: %s" % (name, error.strerror))
    except UnicodeError:
        return failed("%r is no host's name" % name[:80])
    addresses = sorted({str(one[4][0]) for one in found})
    return ok("%s is %s" % (name, ", ".join(addresses[:4])), addresses=addresses[:16])


def check_clock(request: CheckRequest, item: str) -> dict[str, Any]:
    """Whether the kernel's clock follows a time service, and how far it may be off."""
    told = _ask_kernel()
    return unknown("this system has no adjtimex") if told is None else judge_clock(*told)


def judge_clock(status: int, most_error_us: int) -> dict[str, Any]:
    """The same of what the kernel says: adjtimex(2), status and maxerror."""
    if status & _STA_UNSYNC:
        # Without a time service in the node, or in a virtual machine whose host keeps its time.
        return unknown("no time service sets this clock: how far it is off is not known")
    off_s = most_error_us / 1e6
    words = "at most %.3f s off" % off_s
    return failed(words, most_error_s=off_s) if off_s > MOST_CLOCK_S else ok(words, most_error_s=off_s)


def _ask_kernel() -> Optional[tuple[int, int]]:
    """(status, maxerror in us) of adjtimex(2); None = there is none."""
    import ctypes

    class Timex(ctypes.Structure):
        """The beginning of struct timex, and more room than the rest takes."""

        _fields_ = [("modes", ctypes.c_uint), ("offset", ctypes.c_long), ("freq", ctypes.c_long),
                    ("maxerror", ctypes.c_long), ("esterror", ctypes.c_long), ("status", ctypes.c_int),
                    ("rest", ctypes.c_char * 512)]

    timex = Timex()   # modes 0: read only
    try:
        answer = ctypes.CDLL(None).adjtimex(ctypes.byref(timex))
    except (AttributeError, OSError):
        return None
    return None if answer < 0 else (int(timex.status), int(timex.maxerror))


def check_infiniband(request: CheckRequest, item: str) -> dict[str, Any]:
    """State of the ports, and whether their error counters grow."""
    before = read_ports(INFINIBAND)
    if not before:
        return skipped("no InfiniBand or RoCE port")
    time.sleep(BETWEEN_S)
    return judge_ports(before, read_ports(INFINIBAND))


def read_ports(root: str) -> dict[str, dict[str, Any]]:
    """"mlx5_0/1" → {"state", "physical", "rate", "layer", "errors": {counter: value}} of the kernel's files."""
    ports = {}
    for device in _names(root):
        for number in _names(os.path.join(root, device, "ports")):
            folder = os.path.join(root, device, "ports", number)
            # "4: ACTIVE", "5: LinkUp", "200 Gb/sec (4X HDR)"
            state, physical = (_first_line(os.path.join(folder, name)).rpartition(": ")[2]
                               for name in ("state", "phys_state"))
            counters = {name: _first_line(os.path.join(folder, "counters", name)) for name in _ERRORS}
            ports["%s/%s" % (device, number)] = {
                "state": state, "physical": physical, "rate": _first_line(os.path.join(folder, "rate")),
                "layer": _first_line(os.path.join(folder, "link_layer")),
                "errors": {name: int(text) for name, text in counters.items() if text.isdigit()}}
    return ports


def judge_ports(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Two looks at the same ports. One that is down may never have had a cable: what differs between nodes tells."""
    active = sorted(name for name, port in after.items() if port["state"] == "ACTIVE")
    rates = {name: after[name]["rate"] for name in active}
    facts = {"active": active, "rates": rates,
             "errors": {name: sum(port["errors"].values()) for name, port in after.items()}}
    half_up = ["%s is %s" % (name, port["state"] or "unreadable") for name, port in sorted(after.items())
               if port["physical"] == "LinkUp" and port["state"] != "ACTIVE"]   # no subnet manager, or a dying one
    growing = ["%s of %s rose from %d to %d" % (counter, name, before[name]["errors"][counter], value)
               for name, port in sorted(after.items()) for counter, value in port["errors"].items()
               if name in before and value > before[name]["errors"].get(counter, value)]
    gone = ["%s is gone" % name for name in sorted(before) if name not in after]
    if not active:
        return failed("none of %d ports is active" % len(after), **facts)
    if half_up or growing or gone:
        return failed("; ".join([*half_up, *growing, *gone]), **facts)
    return ok("%d of %d ports active: %s" % (len(active), len(after), ", ".join(sorted(set(rates.values())))), **facts)


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))[:256]
    except OSError:
        return []


def _first_line(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(256).decode(errors="replace").partition("\n")[0].strip()
    except OSError:
        return ""
