"""The daemons of a sandbox: munged, slurmctld, and one slurmd per node, each on its own machine (UTS namespace).

With accounting also MariaDB and slurmdbd, both on the machine `db`.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from safelaunch.errors import SandboxError
from safelaunch.sandbox import accounting, cgroups, conf, network, sites
from safelaunch.sandbox.namespaces import Namespace, can_cover, run_all, share_mounts
from safelaunch.sandbox.ports import FIRST_PORT, PortHold
from safelaunch.sandbox.registry import RegisteredSandbox
from safelaunch.sandbox.users import make_homes

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CONTROLLER, MUNGE, LOGIN, DATABASE = "ctl", "munge", "login", "db"
PACKAGES = {
    "slurmd": "slurmd", "slurmctld": "slurmctld", "scontrol": "slurm-client", "srun": "slurm-client",
    "munged": "munge", "useradd": "passwd", "umount": "mount",
    "unshare": "util-linux", "nsenter": "util-linux", "setpriv": "util-linux",
}  # fmt: skip
ACCOUNTING_PACKAGES = {"slurmdbd": "slurmdbd", "mariadbd": "mariadb-server-core", "sacctmgr": "slurm-client"}
NETWORK_PACKAGES = {"ip": "iproute2", "sysctl": "procps"}
NAMES = "names"   # a file there: nodes have the sandbox's /etc/hosts
START_TIMEOUT_S = 60.0
LONGEST_PAUSE_S = 0.5
NVIDIA_MAJOR = 195  # the kernel's Documentation/admin-guide/devices.txt


def check_able(
    path: str = PATH, *, with_accounting: bool = False, with_netns: bool = False, with_cgroup: bool = False
) -> None:
    """Raise SandboxError, with what to type, when such a sandbox cannot be started here."""
    needed = PACKAGES | (ACCOUNTING_PACKAGES if with_accounting else {}) | (NETWORK_PACKAGES if with_netns else {})
    missing = {program: package for program, package in needed.items() if not shutil.which(program, path=path)}
    if missing:
        packages = " ".join(sorted({*missing.values(), "slurmd", "slurmctld", "slurm-client", "munge"}))
        raise SandboxError(
            f"a sandbox is a real Slurm, and this machine lacks {', '.join(missing)}",
            hint=f"On Debian and Ubuntu: apt-get install {packages}   (with sudo unless you are root)",
        )
    check_root()
    if not with_netns:
        check_resolves()
    if with_cgroup:
        cgroups.check_able()


def check_resolves() -> None:
    """Raise SandboxError where the C library resolves nothing, not even an address, as Slurm asks (AI_ADDRCONFIG). That
    is so on a machine that has loopback alone (glibc 2.36, 2.41 and 2.43 with 22.05, 24.11 and 26.05, measured).
    """
    try:
        socket.getaddrinfo("localhost", FIRST_PORT, socket.AF_INET, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    except socket.gaierror as error:
        raise SandboxError(
            f"slurmctld could not listen: this machine has no address but loopback, or no localhost ({error.strerror})",
            hint="Give the sandbox a network of its own: --netns",
        ) from error


def check_root() -> None:
    """Raise SandboxError when this process may not act on a sandbox."""
    if os.geteuid() != 0:
        raise SandboxError(
            "a sandbox's daemons run as root, because they start jobs as different users",
            hint="Try again with sudo: sudo safelaunch sandbox …",
        )


def machine(folder: Path, name: str) -> Namespace:
    """The machine of this name: a node, `ctl`, `munge`, `login` or `db`."""
    net = network.pin_of(folder, name)
    has_hosts = (net or name == CONTROLLER or (folder / NAMES).exists()) and (folder / "hosts").exists()
    hosts = ((folder / "hosts", Path("/etc/hosts")),) if has_hosts else ()
    if name in (CONTROLLER, MUNGE, LOGIN, DATABASE):
        return Namespace(folder / "ns" / name, net, (), hosts)
    places = (*hosts, *sites.places(folder, name))
    return Namespace(folder / "ns" / name, net, sites.covers(folder), places, cgroups.freezer_of(folder, name))


def environment(folder: Path) -> dict[str, str]:
    """What users start with: nothing of the caller's."""
    return {"PATH": PATH, "LANG": "C.UTF-8", "SLURM_CONF": str(folder / "slurm.conf")}


def lay_out(
    entry: RegisteredSandbox, overrides: Mapping[str, str], site: Sequence[str] = (), *, names: bool = False,
) -> None:
    """Make every file and machine of the sandbox; nothing runs yet. `names`: nodes know each other's, also without a
    network of their own.
    """
    folder, nodes = Path(entry.dir), conf.node_names(entry.nodes)
    for sub in ("ns", "run", "log", "spool", "munge", "gpu", "work"):
        (folder / sub).mkdir(mode=0o755)
    for node in nodes:
        (folder / "spool" / node).mkdir(mode=0o755)
    (folder / "state").mkdir(mode=0o700)
    key = folder / "munge" / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    _make_gpus(folder / "gpu", entry)
    settings = {**sites.settings(folder, site), **overrides}
    (folder / "slurm.conf").write_text(conf.render_slurm_conf(entry, settings, sites.TWO_NETWORKS in site))
    (folder / "gres.conf").write_text(conf.render_gres_conf(entry))
    make_homes(folder / "home")
    if entry.cgroup:
        cgroups.lay_out(folder)
    else:
        # slurmd would load the plugin of this machine's cgroups all the same, and that of v2 wants the bus of systemd,
        # which a container lacks (22.05: "cannot connect to dbus system daemon"). That of v1 wants nothing.
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    servers = (CONTROLLER, MUNGE, LOGIN, *((DATABASE,) if entry.accounting else ()))
    if entry.netns:
        share_mounts(folder / "work")
        network.create(folder, [name for name in (*servers, *nodes) if name != MUNGE])
        if sites.TWO_NETWORKS in site:
            network.add_second(folder, nodes)
    elif can_cover() and sites.UNKNOWN_HOSTS not in site:
        # slurmctld asks for the host of each srun whose job ends. Debian's asks eleven times for a name that does not
        # resolve, a second apart, and answers nobody meanwhile (22.05, 24.11, 26.05: "attempt number").
        known = "".join(f"127.0.0.1 {name}\n" for name in (LOGIN, *nodes))
        (folder / "hosts").write_text(f"{Path('/etc/hosts').read_text()}\n{known}")
        if names:
            share_mounts(folder / "work")
            (folder / NAMES).touch()
    if site:
        share_mounts(folder / "work")
        sites.lay_out(folder, site, nodes)
    for name in (*servers, *nodes):
        # Without a network of its own a server must be found by a name that resolves.
        machine(folder, name).create("localhost" if name in (CONTROLLER, DATABASE) and not entry.netns else name)
    if entry.accounting:
        known_as = (DATABASE, network.address_of(DATABASE)) if entry.netns else ("localhost", "localhost")
        accounting.lay_out(entry, machine(folder, DATABASE).enter([]), *known_as)


def _make_gpus(folder: Path, entry: RegisteredSandbox) -> None:
    """Stand-ins for GPUs; the number in a name becomes CUDA_VISIBLE_DEVICES.

    slurmd wants character devices (22.05: "not a valid character or block device"), and /dev/null is one that does no
    harm. With ConstrainDevices a job may only open those that it was given. Then each is a device of its own, of
    NVIDIA's number. It opens on no machine without such a driver (ENXIO), and is refused where not given (EPERM).
    """
    for i in range(entry.gpus):
        if entry.cgroup:
            os.mknod(folder / f"nvidia{i}", stat.S_IFCHR | 0o666, os.makedev(NVIDIA_MAJOR, i))
            (folder / f"nvidia{i}").chmod(0o666)
        else:
            (folder / f"nvidia{i}").symlink_to("/dev/null")


def start(folder: Path, names: tuple[str, ...], held: PortHold | None = None) -> None:
    """Start the daemons of these machines, all at once; SandboxError with what a failed one said.

    They go on holding the ports that are `held`.
    """
    commands = {name: machine(folder, name).enter(_command(folder, name)) for name in names}
    files = tuple(one.fileno() for one in held.sockets) if held else ()
    run_all(commands, folder / "log", environment(folder), START_TIMEOUT_S, files)


def start_accounting(folder: Path, entry: RegisteredSandbox) -> None:
    """Start MariaDB and slurmdbd, and return when slurmdbd listens."""
    db = machine(folder, DATABASE)
    accounting.start_database(folder, db.enter([]), environment(folder))
    wait_for_file(folder / "db" / "socket", START_TIMEOUT_S)
    start(folder, (DATABASE,))
    wait_for(lambda: db.is_listening(entry.dbd_port), START_TIMEOUT_S, "slurmdbd does not listen")


def last_words(folder: Path, lines: int = 12) -> str:
    """The end of every log that complains, for the message of a failed start."""
    found = []
    for path in sorted((folder / "log").glob("*.log")):
        text = path.read_text(errors="replace").splitlines()
        wrong = [line for line in text if "error:" in line or "fatal:" in line][-lines:]
        if wrong:
            found.append("\n  ".join([f"{path.name}:", *wrong]))
    return "\n".join(found)


def knows_names(folder: Path) -> bool:
    """Whether the names of nodes resolve on the nodes of a sandbox."""
    return network.pin_of(folder, LOGIN) is not None or (folder / NAMES).exists()


def wait_for_file(path: Path, timeout_s: float) -> None:
    """Return when the path exists; SandboxError when it does not in time."""
    wait_for(path.exists, timeout_s, f"{path} did not appear", every_s=0.005)


def wait_for(
    is_so: Callable[[], bool], timeout_s: float, complaint: str, describe: Callable[[], str] = lambda: "",
    every_s: float = 0.03,
) -> None:
    """Return when `is_so` is true; SandboxError with the complaint, and what `describe` says then, when it is late.

    What takes long is asked less often: a sinfo every 30 ms is half a core, of which the starting daemons have need.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        begun = time.monotonic()
        if is_so():
            return
        now = time.monotonic()
        if now > deadline:
            raise SandboxError(f"{complaint} within {timeout_s:.0f} s: {describe()}".rstrip(": "))
        time.sleep(min(max(every_s, 4 * (now - begun)), LONGEST_PAUSE_S))


def _command(folder: Path, name: str) -> list[str]:
    if name == CONTROLLER:
        return ["slurmctld"]
    if name == DATABASE:
        return ["env", f"MYSQL_UNIX_PORT={folder}/db/socket", "slurmdbd"]  # where libmariadb looks for localhost
    if name != MUNGE:
        return ["slurmd", "-N", name]
    own = folder / "munge"
    return [
        "munged", f"--key-file={own}/key", f"--socket={own}/socket", f"--pid-file={own}/pid", f"--log-file={own}/log",
        f"--seed-file={own}/seed", "--num-threads=2", "--origin=127.0.0.1",
    ]  # fmt: skip
