"""Control groups of a sandbox (`up --cgroup`): each job's memory and devices are limited, and its processes are kept
together, by the kernel, as on most clusters.

A group of the sandbox's own in every cgroup v1 controller lies bound at <folder>/cgroup/<controller>, and cgroup.conf
calls that folder the mount point. Below it slurmd makes /slurm_<node>/uid_<uid>/job_<id>/step_<id> (a build that can
run several slurmds on one machine adds the node's name: 22.05, measured). So neither two nodes nor two sandboxes share
a path, and nothing outside the sandbox's own group is touched.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from safelaunch.errors import SandboxError
from safelaunch.sandbox.command import run_command

CONTROLLERS = ("freezer", "cpuset", "memory", "devices", "cpuacct")  # what cgroup/v1 asks for by name
PREFIX = "safelaunch-"
REMOVE_TIMEOUT_S = 10.0
OLD_S = 3600.0
# What a cpuset starts without and no process may enter it without (cpuset(7)).
CPUSET_FILES = ("cpuset.cpus", "cpuset.mems")
# ConstrainCores stays off: a sandbox's CPUs are no CPUs of this machine (SlurmdParameters=config_overrides).
CONF = {
    "CgroupPlugin": "cgroup/v1",
    "ConstrainRAMSpace": "yes",
    "ConstrainSwapSpace": "yes",
    "ConstrainDevices": "yes",
}


def check_able() -> None:
    """Raise SandboxError, with the reason, where this machine has no cgroup v1 with all the controllers it takes."""
    found = mounted()
    missing = [name for name in CONTROLLERS if name not in found]
    if missing:
        raise SandboxError(
            f"a sandbox with cgroups takes cgroup v1, and this machine has no {', '.join(missing)} in it",
            hint="cgroup v2 alone will not do: boot with systemd.unified_cgroup_hierarchy=0, or do without --cgroup",
        )


def mounted() -> dict[str, Path]:
    """Controller → where its hierarchy is mounted on this machine."""
    return mount_points(Path("/proc/self/mountinfo").read_text())


def mount_points(mountinfo: str) -> dict[str, Path]:
    """Controller → where its hierarchy is mounted, from proc_pid_mountinfo(5); a sandbox's own mounts do not count."""
    found: dict[str, Path] = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        root, place = before.split()[3:5]
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup" and PREFIX not in root:
            for name in set(options.split(",")) & set(CONTROLLERS):
                found.setdefault(name, Path(place))
    return found


def render_conf(folder: Path) -> str:
    """cgroup.conf(5) of the sandbox."""
    return "".join(f"{key}={value}\n" for key, value in {**CONF, "CgroupMountpoint": f"{folder}/cgroup"}.items())


def lay_out(folder: Path) -> None:
    """Make the sandbox's groups, bind them into its folder, and write cgroup.conf."""
    sweep_dead()
    points = mounted()
    (folder / "cgroup").mkdir(mode=0o755)
    for name in CONTROLLERS:
        group, bound = points[name] / group_name(folder), folder / "cgroup" / name
        group.mkdir(exist_ok=True)  # controllers that are mounted together share theirs
        if name == "cpuset":
            for file in CPUSET_FILES:
                (group / file).write_text((points[name] / file).read_text())
        bound.mkdir()
        run_command(["mount", "--bind", str(group), str(bound)])
    (folder / "cgroup.conf").write_text(render_conf(folder))


def group_name(folder: Path) -> str:
    """The name of a sandbox's group: its folder's inode tells sandboxes of one name apart that do not see each other.

    Containers and chroots on one machine have folders of their own, and one and the same /sys/fs/cgroup.
    """
    facts = folder.stat()
    return f"{PREFIX}{folder.name}-{facts.st_dev:x}-{facts.st_ino:x}"


def hold(folder: Path, pid: int) -> None:
    """Put a process that lives as long as the sandbox into its group, so that nobody takes the group for a dead one's.
    """
    with suppress(FileNotFoundError):
        (folder / "cgroup" / "freezer" / "cgroup.procs").write_text(str(pid))


def freezer_of(folder: Path, machine: str) -> Path | None:
    """The freezer group of all jobs on a machine of the sandbox; None without cgroups."""
    root = folder / "cgroup" / "freezer"
    return root / f"slurm_{machine}" if root.exists() else None


def thaw(group: Path) -> None:
    """Thaw a group and all groups in it."""
    for state in (group / "freezer.state", *group.glob("**/freezer.state")):
        with suppress(OSError):  # there is none, or it has just been removed
            if state.read_text().strip() != "THAWED":
                state.write_text("THAWED")


def remove(folder: Path) -> None:
    """Remove the sandbox's groups, once no process is left in it; SandboxError names what is still there."""
    if not (folder / "cgroup").exists():
        return
    name = group_name(folder)
    groups = [point / name for point in mounted().values()]
    deadline = time.monotonic() + REMOVE_TIMEOUT_S
    while left := [group for group in groups if not _remove_tree(group)]:
        if time.monotonic() > deadline:
            raise SandboxError(f"control groups that cannot be removed: {', '.join(map(str, left))}")
        time.sleep(0.02)  # a process that has just died still counts for a moment


def sweep_dead() -> None:
    """Remove old groups without any process: their sandbox was killed, and its folder removed by other means."""
    points = mounted()
    for group in points["freezer"].glob(f"{PREFIX}*"):
        with suppress(OSError):
            is_old = time.time() - group.stat().st_mtime > OLD_S
            if is_old and not any(file.read_text().split() for file in group.glob("**/cgroup.procs")):
                for point in points.values():
                    _remove_tree(point / group.name)


def _remove_tree(group: Path) -> bool:
    """Remove a group and those in it, the innermost first; whether it is gone."""
    inside = sorted(group.glob("**/"), key=lambda path: len(path.parts), reverse=True)
    for inner in (*inside, group):
        with suppress(OSError):  # gone already, or busy
            inner.rmdir()
    return not group.exists()
