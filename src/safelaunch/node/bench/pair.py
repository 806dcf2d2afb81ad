"""All-reduce between this node and another, by torch.distributed in a child; one JSON line as of node/bench/main.py.

The first of the pair listens on a port of its choice out of those asked; the second tries the first's addresses with
all of them. Who has shown the pair's token is told a second port, which PyTorch then uses: names need not resolve.
Standard library, Python 3.9.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import json
import os
import socket
import struct
import time

from safelaunch.node import children
from safelaunch.node.bench.work import measured
from safelaunch.node.checks.answer import IMPORT_TORCH, CheckRequest, failed, print_answer, skipped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Optional

CONNECT_S = 2.0
PAUSE_S = 0.05
MEET_SHARE = 0.5     # of the deadline: the rest is for PyTorch
SIOCGIFADDR = 0x8915   # netdevice(7)
# The bus bandwidth of n ranks is bytes / time × 2 (n - 1) / n (NCCL's own tests, PERFORMANCE.md): of two, × 1.
ALLREDUCE = f"import json, sys, time\n{IMPORT_TORCH}" + """from datetime import timedelta
import torch.distributed as dist
rank, within_s, repeats = map(int, sys.argv[1:])
gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if gpu else "gloo", rank=rank, world_size=2, timeout=timedelta(seconds=within_s))
data = torch.ones(1 << 28 if gpu else 1 << 22, device="cuda" if gpu else "cpu")
samples = []
for turn in range(repeats + 1):
    start = time.perf_counter()
    dist.all_reduce(data)
    if gpu:
        torch.cuda.synchronize()
    samples.append(data.numel() * data.element_size() / (time.perf_counter() - start) / 1e9)
dist.destroy_process_group()
print(json.dumps({"torch": torch.__version__, "backend": "nccl" if gpu else "gloo", "samples": samples[1:]}))
"""


class PairRequest:
    """What is asked of a node; raises ValueError for a request that makes no sense."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        common = CheckRequest({key: fields.get(key) for key in ("node", "python", "deadline_s")})
        self.node, self.python = common.node, common.python
        self.until_s = time.monotonic() + common.deadline_s
        self.meet_until_s = time.monotonic() + common.deadline_s * MEET_SHARE
        try:
            self.peer, self.token, self.is_first = str(fields["peer"]), str(fields["token"]), bool(fields["is_first"])
            self.addresses = [str(address) for address in fields["addresses"]]
            self.ports = [int(port) for port in fields["ports"]]
            self.repeats = int(fields.get("repeats", 5))
        except (LookupError, TypeError) as error:
            raise ValueError("not a pair: %s" % error) from error


def interface_of(address: str) -> str:
    """The network interface that has an address, "" = none is known."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                told = fcntl.ioctl(sock.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(told[20:24]) == address:
                    return name
    return ""


def measure(request: PairRequest) -> dict[str, Any]:
    """The answer: the bus bandwidth with the other node."""
    met = meet(request)
    if met is None:
        return failed(no_meeting(request))
    address, port, own = met
    name = interface_of(own)
    env = dict(os.environ, MASTER_ADDR=address, MASTER_PORT=str(port))
    for key in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME") if name else ():
        env.setdefault(key, name)   # a person's own choice stands
    left_s = max(1.0, request.until_s - time.monotonic())
    words = [request.python or "python", "-c", ALLREDUCE, "0" if request.is_first else "1", str(int(left_s) + 1),
             str(request.repeats)]
    return read(children.run_all([children.Task("pair", words, left_s, env)], 1, request.until_s)["pair"], request)


def meet(request: PairRequest) -> Optional[tuple[str, int, str]]:
    """The address and port of the first of the pair, and this node's own address; None = they did not meet."""
    return _wait_for_peer(request) if request.is_first else _find_first(request)


def no_meeting(request: PairRequest) -> str:
    """Why `meet` came to nothing."""
    return "%s did not %s" % (request.peer, "connect" if request.is_first else "answer")


def read(outcome: children.Outcome, request: PairRequest) -> dict[str, Any]:
    """What the child with PyTorch has said."""
    if outcome.late:
        return failed("all-reduce with %s gave no answer in time" % request.peer)
    if outcome.code == 127 and not request.python:
        return skipped("no python in PATH, and none was named")
    if outcome.code != 0:
        return failed("all-reduce with %s: %s" % (request.peer, outcome.said or "exit code %s" % outcome.code))
    try:
        told = json.loads(outcome.text.strip().splitlines()[-1])
        if told["torch"] is None:
            return skipped("PyTorch is not installed for this interpreter")
        return measured("GB/s", "all-reduce by %s" % told["backend"], told["samples"], torch=told["torch"])
    except (ValueError, LookupError, TypeError) as error:
        return failed("all-reduce with %s: its answer is not understood (%s)" % (request.peer, error))


def _wait_for_peer(request: PairRequest) -> Optional[tuple[str, int, str]]:
    listener = _listen(request.ports)
    with listener:
        while (left_s := request.meet_until_s - time.monotonic()) > 0:
            listener.settimeout(left_s)
            try:
                peer, _ = listener.accept()
            except OSError:
                continue
            with peer, contextlib.suppress(OSError):
                peer.settimeout(CONNECT_S)
                if hmac.compare_digest(peer.recv(256), request.token.encode()):
                    address = peer.getsockname()[0]
                    port = _free_port(address)
                    peer.sendall(b"%d\n" % port)
                    return address, port, address
    return None


def _find_first(request: PairRequest) -> Optional[tuple[str, int, str]]:
    while time.monotonic() < request.meet_until_s:
        for address in request.addresses:
            for port in request.ports:
                with contextlib.suppress(OSError, ValueError):
                    left_s = max(0.1, min(CONNECT_S, request.meet_until_s - time.monotonic()))
                    with socket.create_connection((address, port), timeout=left_s) as first:
                        first.sendall(request.token.encode())
                        return address, int(first.recv(16)), first.getsockname()[0]
        time.sleep(PAUSE_S)
    return None


def _listen(ports: list[int]) -> socket.socket:
    for port in ports:
        try:
            return socket.create_server(("", port))
        except OSError:
            continue
    raise OSError("none of the ports %s is free" % ports)


def _free_port(address: str) -> int:
    with socket.create_server((address, 0)) as sock:
        return int(sock.getsockname()[1])


def look(request: PairRequest, told: dict[str, Any]) -> None:
    """Measure, and add it to a node's answer."""
    start_s = time.monotonic()
    try:
        row = measure(request)
    except OSError as error:
        row = failed(str(error))
    told["checks"] = [{"name": "bus", "item": request.peer, "took_s": round(time.monotonic() - start_s, 3), **row}]


def main(text: str) -> int:
    """Print the answer to a request, a JSON object; 0, whatever happened."""
    return print_answer(text, "bench", PairRequest, look)
