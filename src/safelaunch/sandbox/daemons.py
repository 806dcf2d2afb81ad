"""The daemons of a sandbox: munged, slurmctld, and one slurmd per node, each on its own machine (UTS namespace)."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from safelaunch.errors import SandboxError
from safelaunch.sandbox import conf
from safelaunch.sandbox.namespaces import Namespace, run_all
from safelaunch.sandbox.registry import Entry
from safelaunch.sandbox.users import make_homes

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CONTROLLER, MUNGE, LOGIN = "ctl", "munge", "login"
PACKAGES = {
    "slurmd": "slurmd", "slurmctld": "slurmctld", "scontrol": "slurm-client", "srun": "slurm-client",
    "munged": "munge", "useradd": "passwd", "umount": "mount",
    "unshare": "util-linux", "nsenter": "util-linux", "setpriv": "util-linux",
}  # fmt: skip
START_TIMEOUT_S = 60.0


def check_able(path: str = PATH) -> None:
    """Raise SandboxError, with what to type, when a sandbox cannot be started here."""
    missing = {program: package for program, package in PACKAGES.items() if not shutil.which(program, path=path)}
    if missing:
        packages = " ".join(sorted({*missing.values(), "slurmd", "slurmctld", "slurm-client", "munge"}))
        raise SandboxError(
            f"a sandbox is a real Slurm, and this machine lacks {', '.join(missing)}",
            hint=f"On Debian and Ubuntu: apt-get install {packages}   (with sudo unless you are root)",
        )
    check_root()


def check_root() -> None:
    """Raise SandboxError when this process may not act on a sandbox."""
    if os.geteuid() != 0:
        raise SandboxError(
            "a sandbox's daemons run as root, because they start jobs as different users",
            hint="Try again with sudo: sudo safelaunch sandbox …",
        )


def machine(folder: Path, name: str) -> Namespace:
    """The machine of this name: a node, `ctl`, `munge` or `login`."""
    return Namespace(folder / "ns" / name)


def environment(folder: Path) -> dict[str, str]:
    """What daemons and users start with: nothing of the caller's."""
    return {"PATH": PATH, "LANG": "C.UTF-8", "SLURM_CONF": str(folder / "slurm.conf")}


def lay_out(entry: Entry, overrides: Mapping[str, str]) -> None:
    """Make every file and machine of the sandbox; nothing runs yet."""
    folder, nodes = Path(entry.dir), conf.node_names(entry.nodes)
    for sub in ("ns", "run", "log", "spool", "munge", "gpu", "work"):
        (folder / sub).mkdir(mode=0o755)
    for node in nodes:
        (folder / "spool" / node).mkdir(mode=0o755)
    (folder / "state").mkdir(mode=0o700)
    key = folder / "munge" / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    for i in range(entry.gpus):
        # slurmd wants character devices (22.05: "not a valid character or block device"); /dev/null is one that does no
        # harm, and the number in the name becomes CUDA_VISIBLE_DEVICES.
        (folder / "gpu" / f"nvidia{i}").symlink_to("/dev/null")
    (folder / "slurm.conf").write_text(conf.render_slurm_conf(entry, overrides))
    (folder / "gres.conf").write_text(conf.render_gres_conf(entry))
    make_homes(folder / "home")
    for name in (CONTROLLER, MUNGE, LOGIN, *nodes):
        machine(folder, name).create("localhost" if name == CONTROLLER else name)


def start(folder: Path, names: tuple[str, ...]) -> None:
    """Start the daemons of these machines, all at once; SandboxError with what a failed one said."""
    commands = {name: machine(folder, name).enter(_command(folder, name)) for name in names}
    run_all(commands, folder / "log", environment(folder), START_TIMEOUT_S)


def last_words(folder: Path, lines: int = 12) -> str:
    """The end of every log that complains, for the message of a failed start."""
    found = []
    for path in sorted((folder / "log").glob("*.log")):
        text = path.read_text(errors="replace").splitlines()
        wrong = [line for line in text if "error:" in line or "fatal:" in line][-lines:]
        if wrong:
            found.append("\n  ".join([f"{path.name}:", *wrong]))
    return "\n".join(found)


def wait_for_file(path: Path, timeout_s: float) -> None:
    """Return when the path exists; SandboxError when it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not path.exists():
        if time.monotonic() > deadline:
            raise SandboxError(f"{path} did not appear within {timeout_s:.0f} s")
        time.sleep(0.005)


def _command(folder: Path, name: str) -> list[str]:
    if name == CONTROLLER:
        return ["slurmctld"]
    if name != MUNGE:
        return ["slurmd", "-N", name]
    own = folder / "munge"
    return [
        "munged", f"--key-file={own}/key", f"--socket={own}/socket", f"--pid-file={own}/pid", f"--log-file={own}/log",
        f"--seed-file={own}/seed", "--num-threads=2", "--origin=127.0.0.1",
    ]  # fmt: skip
