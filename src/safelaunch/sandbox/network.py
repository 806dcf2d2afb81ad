"""A network of their own for the machines of a sandbox (`up --netns`), whose cables can be cut.

Every machine has a network namespace with a loopback device and one cable, `eth0`, into a further namespace, the
switch. The switch forwards by address and drops what it has no cable for: a blackhole route. So a cut machine is alive
but alone: what it sends and what is sent to it vanishes, without FIN or RST. No ARP is spoken, as all neighbours are
permanent: a failed one would tell a connecting peer after 3 s that somebody is gone ("No route to host").
Nothing of the host's own network is touched, and nothing leads from one to the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from safelaunch.errors import SandboxError
from safelaunch.sandbox.command import run_command

SWITCH = "switch"
NETWORK, GATEWAY, GATEWAY_MAC = "10.77.0.0/16", "10.77.255.254", "02:77:00:00:ff:fe"
SERVERS = {"ctl": "10.77.0.1", "login": "10.77.0.2", "db": "10.77.0.3"}
NODES_PER_BLOCK = 200
SECOND = "10.78.0.0/16"   # of sites with two networks


def second_address_of(name: str) -> str:
    """The address of a node on its second network: 10.78.1.1 and on for n0 and on."""
    return address_of(name).replace("10.77.", "10.78.", 1)


def address_of(name: str) -> str:
    """The address of a machine: 10.77.0.x for the servers, 10.77.1.1 and on for n0 and on."""
    if name in SERVERS:
        return SERVERS[name]
    block, place = divmod(int(name.removeprefix("n")), NODES_PER_BLOCK)
    return f"10.77.{1 + block}.{1 + place}"


def pin_of(folder: Path, name: str) -> Path | None:
    """Where the network namespace of a machine is pinned; None for a machine on the host's own network."""
    pin = folder / "net" / name
    return pin if pin.exists() else None


def render_hosts(names: Sequence[str]) -> str:
    """/etc/hosts of all machines: real sites resolve their nodes' names, and libraries ask for their own."""
    return "127.0.0.1 localhost\n" + "".join(f"{address_of(name)} {name}\n" for name in names)


def create(folder: Path, names: Sequence[str]) -> None:
    """Make the switch, and for each machine a namespace with its cable plugged in; SandboxError if that cannot be."""
    (folder / "net").mkdir()
    (folder / "hosts").write_text(render_hosts(names))
    for name in (SWITCH, *names):
        pin = folder / "net" / name
        pin.touch()
        run_command(
            ["unshare", f"--net={pin}", "ip", "link", "set", "lo", "up"],
            hint="--netns needs CAP_NET_ADMIN and CAP_SYS_ADMIN; in a container: --privileged",
        )
    switch = folder / "net" / SWITCH
    run_command(["nsenter", f"--net={switch}", "sysctl", "-q", "-w", "net.ipv4.ip_forward=1"])
    lines = [f"route add blackhole {NETWORK}"]
    for name in names:
        lines += [
            f"link add {name} address {GATEWAY_MAC} type veth "
            f"peer name eth0 address {_mac_of(name)} netns {folder}/net/{name}",
            *_plug(name),
        ]
    _ip(switch, lines)
    for name in names:
        _ip(folder / "net" / name, _set_up(name))


def add_second(folder: Path, nodes: Sequence[str]) -> None:
    """Give each node an address on a second network, and close the first one between nodes: packets to a node's first
    address vanish. Servers are reached as before.
    """
    for name in nodes:
        second = second_address_of(name)
        _ip(_switch(folder), [f"route del {address_of(name)}/32 dev {name}",
                              f"neigh replace {second} lladdr {_mac_of(name)} dev {name} nud permanent",
                              f"route replace {second}/32 dev {name}"])
        _ip(folder / "net" / name, [
            f"address add {second}/32 dev eth0",
            *(f"route replace {network} via {GATEWAY} dev eth0 onlink src {second}" for network in (NETWORK, SECOND))])
    for name in (*SERVERS, "login"):
        pin = folder / "net" / name
        if pin.exists():
            _ip(pin, [f"route replace {SECOND} via {GATEWAY} dev eth0 onlink src {address_of(name)}"])


def cut(folder: Path, name: str) -> None:
    """Pull the machine's cable; it is alone with its loopback device."""
    _ip(_switch(folder), [f"link set {name} down"])


def mend(folder: Path, name: str) -> None:
    """Plug the machine's cable in again; nothing happens to one that is plugged in."""
    _ip(_switch(folder), _plug(name))


def _switch(folder: Path) -> Path:
    pin = folder / "net" / SWITCH
    if not pin.exists():
        raise SandboxError(
            "the machines of this sandbox share the host's network: nothing can be cut",
            hint="Start one with networks: safelaunch sandbox up --netns",
        )
    return pin


def _plug(name: str) -> list[str]:
    # The kernel drops both lines when a link goes down, so they are said again each time.
    return [
        f"link set {name} up",
        f"neigh replace {address_of(name)} lladdr {_mac_of(name)} dev {name} nud permanent",
        f"route replace {address_of(name)}/32 dev {name}",
    ]


def _set_up(name: str) -> list[str]:
    return [
        f"address add {address_of(name)}/32 dev eth0",
        "link set eth0 up",
        f"neigh replace {GATEWAY} lladdr {GATEWAY_MAC} dev eth0 nud permanent",
        # Not a default route: a question to a name server outside then fails at once instead of after 5 s.
        f"route add {NETWORK} via {GATEWAY} dev eth0 onlink src {address_of(name)}",
    ]


def _mac_of(name: str) -> str:
    return "02:77:" + ":".join(f"{int(part):02x}" for part in address_of(name).split("."))


def _ip(pin: Path, lines: Sequence[str]) -> None:
    run_command(["nsenter", f"--net={pin}", "ip", "-batch", "-"], stdin="\n".join(lines) + "\n")
