"""Sites that differ from a plain Slurm: a table of them (`up --site`)."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from safelaunch.base.io import modes
from safelaunch.errors import SandboxError
from safelaunch.sandbox.command import run_command
from safelaunch.sandbox.namespaces import Pairs
from safelaunch.sandbox.users import USERS

# Below /tmp a sandbox could not be seen from nodes whose /tmp is another one.
ROOM = Path("/var/lib/safelaunch-sandboxes")
# A message to who submits comes as "sbatch: …" on stderr, before the job's id.
GREETING_LUA = """\
function slurm_job_submit(request, partitions, uid)
  slurm.log_user("Welcome to the cluster. 12345 hours are left on your account.")
  return slurm.SUCCESS
end

function slurm_job_modify(request, job, partitions, uid)
  return slurm.SUCCESS
end
"""
# Before slurmctld looks at the request, so that what sbatch was asked for is nowhere any more.
TIME_LIMIT_LUA = """\
function slurm_job_submit(request, partitions, uid)
  request.time_limit = 1
  return slurm.SUCCESS
end

function slurm_job_modify(request, job, partitions, uid)
  return slurm.SUCCESS
end
"""
# cli_filter.lua runs inside sbatch, salloc and srun themselves; an option that was not given is "unset" (22.05).
NO_OVERLAP_LUA = """\
function slurm_cli_setup_defaults(quirks, early_pass)
  return slurm.SUCCESS
end

function slurm_cli_pre_submit(quirks, pack_offset)
  if quirks["type"] == "srun" and quirks["overlap"] == "set" then
    slurm.log_error("--overlap is not allowed on this cluster")
    return slurm.ERROR
  end
  return slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job, step)
  return slurm.SUCCESS
end
"""
BANNER = """\
#!/bin/bash
# The real command, as a child, with a site's words around it.
echo "*** {name} of this site: mind the new quotas ***"
echo "*** help: support@example.org ***" >&2
/usr/bin/{name} "$@"
code=$?
echo "*** {name} is done ***"
exit "$code"
"""
WITHOUT_OVERLAP = """\
#!/bin/bash
# Takes --overlap away: a step gets what no other step of the job has.
words=()
for word; do [[ $word == --overlap ]] || words+=("$word"); done
exec /usr/bin/srun "${words[@]}"
"""
# slurm.conf(5), TaskProlog: "export NAME=value" and "print …" are obeyed, all else is ignored.
TASK_PROLOG = """\
#!/bin/bash
echo "print *** node $SLURMD_NODENAME, task $SLURM_PROCID: have a nice day ***"
echo 'print {"v": 1, "not": "ours"}'
echo "a line that Slurm ignores"
echo "export TMPDIR=/nonexistent/job-$SLURM_JOB_ID/step-$SLURM_STEP_ID"
echo "export SITE_STEP=$SLURM_STEP_ID"
"""
# slurm.conf(5), Prolog: it runs as root, on a node where no step of the job has run yet.
FAILING_PROLOG = """\
#!/bin/bash
[ ! -e {dir}/bad-$SLURMD_NODENAME ]
"""
# slurm.conf(5), TaskProlog: slurmstepd has told srun that the task runs, and waits for this.
LATE_TASK = """\
#!/bin/bash
while [ -e {dir}/late-$SLURMD_NODENAME ]; do sleep 0.1; done
"""
# Stands for csh, which no command of ours is written for: whoever gives one to the login shell gets nothing.
CSH = """\
#!/bin/bash
echo "if: Expression Syntax." >&2
exit 1
"""


@dataclass(frozen=True)
class Quirk:
    """One way in which a site differs. "{dir}" is the sandbox's folder and "{node}" the node's name."""

    what: str
    settings: Mapping[str, str] = field(default_factory=dict)             # lines of slurm.conf
    files: Mapping[str, str] = field(default_factory=dict)                # beside slurm.conf
    programs: Mapping[str, str] = field(default_factory=dict)             # path on the nodes → its text
    links: Mapping[str, str] = field(default_factory=dict)                # path on the nodes → where it leads
    hidden: tuple[str, ...] = ()                                          # patterns of paths that nodes do not have
    places: tuple[tuple[str, str], ...] = ()                              # folder, what it stands in place of on nodes
    disks: Mapping[str, str] = field(default_factory=dict)                # folder → mount quirks of a tmpfs on it


NODE_TMP = (("{dir}/node-tmp/{node}", "/tmp"),)  # noqa: S108 - the path itself
TWO_NETWORKS, OLD_PYTHON, OTHER_SHELL, OWN_TMP = "two-networks", "python-3.9", "csh", "tmp-per-job"
UNKNOWN_HOSTS = "unknown-hosts"
QUIRKS = {
    TWO_NETWORKS: Quirk("nodes have two networks (with --netns): Slurm uses the second, and on the first, to which "
                        "their names resolve, no node reaches another one"),
    UNKNOWN_HOSTS: Quirk("slurmctld finds no host by its name (without --netns)"),
    "tmp-noexec": Quirk("each node has a /tmp of its own in which nothing can be executed", places=NODE_TMP,
                        disks={"{dir}/node-tmp/{node}": "size=512m,mode=1777,noexec,nosuid,nodev"}),
    "tmp-small": Quirk("each node has a /tmp of its own that holds 48 MB", places=NODE_TMP,
                       disks={"{dir}/node-tmp/{node}": "size=48m,mode=1777"}),
    # Several slurmds on one machine make a folder each below BasePath. No mount namespace for each node here: slurmd
    # pins those of its jobs by bind mounts. The kernel refuses that for one with a lower number than slurmd's own, and
    # Linux 6.18 numbers them for each CPU apart. (Measured: 20 of 20 fail where slurmd's was made on CPU 1 and the
    # job's on CPU 0, none of 60 otherwise.)
    OWN_TMP: Quirk("each job has a /tmp and a /dev/shm of its own on each node (job_container/tmpfs)",
                   {"JobContainerType": "job_container/tmpfs", "PrologFlags": "Contain"},
                   {"job_container.conf": "AutoBasePath=true\nBasePath={dir}/job-tmp\n"}),
    "no-home": Quirk("nodes do not have the users' homes", places=(("{dir}/no-home", "{dir}/home"),)),
    "no-python": Quirk("nodes have no python3", hidden=("/usr/bin/python3*",)),
    OLD_PYTHON: Quirk("python3 on nodes is Python 3.9, where this machine has one (python3.9, or pyenv's)",
                      links={"/usr/bin/python3": "{dir}/python-3.9/bin/python3.9",
                             # pyenv's own looks for it by the path of its birth, which is closed to ordinary users.
                             "/usr/lib/libpython3.9.so.1.0": "{dir}/python-3.9/lib/libpython3.9.so.1.0"}),
    "srun-banner": Quirk("srun on nodes is a script of the site around the real one, which prints",
                         programs={"/usr/local/bin/srun": BANNER.format(name="srun")}),
    "sbatch-banner": Quirk("sbatch on nodes is a script of the site around the real one, and jobs are greeted",
                           {"JobSubmitPlugins": "lua"}, {"job_submit.lua": GREETING_LUA},
                           programs={"/usr/local/bin/sbatch": BANNER.format(name="sbatch")}),
    "overlap-refused": Quirk("srun refuses --overlap (cli_filter/lua)", {"CliFilterPlugins": "lua"},
                             {"cli_filter.lua": NO_OVERLAP_LUA}),
    "overlap-ignored": Quirk("srun on nodes is a script of the site that takes --overlap away",
                             programs={"/usr/local/bin/srun": WITHOUT_OVERLAP}),
    "task-prolog": Quirk("a TaskProlog prints, and gives each step another TMPDIR, which does not exist",
                         {"TaskProlog": "{dir}/task_prolog"}, {"task_prolog": TASK_PROLOG}),
    "late-tasks": Quirk("tasks wait on each node NAME for which the sandbox's folder has a file late-NAME",
                        {"TaskProlog": "{dir}/task_prolog"}, {"task_prolog": LATE_TASK}),
    "slow-prolog": Quirk("Prolog and Epilog take three seconds on each node",
                         {"Prolog": "{dir}/prolog", "Epilog": "{dir}/prolog"},
                         {"prolog": "#!/bin/bash\nsleep 3\n"}),
    "prolog-fails": Quirk("the Prolog fails on each node NAME for which the sandbox's folder has a file bad-NAME",
                          {"Prolog": "{dir}/prolog"}, {"prolog": FAILING_PROLOG}),
    "time-limit": Quirk("every job gets one minute, whatever it asks for (job_submit.lua)", {"JobSubmitPlugins": "lua"},
                        {"job_submit.lua": TIME_LIMIT_LUA}),
    OTHER_SHELL: Quirk("the users' login shell on nodes is a csh (a stand-in, which takes no command)",
                       programs={"/usr/local/bin/csh": CSH}),
    "private-data": Quirk("people see their own jobs only, and no nodes, partitions or reservations",
                          {"PrivateData": "accounts,events,jobs,nodes,partitions,reservations,usage,users"}),
}


# --- sites that are so from the start -----------------------------------------------------------------------------


def describe() -> str:
    """Each word and what it means, for people."""
    return "; ".join(f"{word}: {quirk.what}" for word, quirk in QUIRKS.items())


def check(folder: Path, quirks: Sequence[str], *, has_netns: bool) -> None:
    """Raise SandboxError for a word that is none, or for a folder that such a site's nodes would not see."""
    for word in quirks:
        if word not in QUIRKS:
            raise SandboxError(f"--site {word}: known are {', '.join(QUIRKS)}")
    if OLD_PYTHON in quirks and old_python() is None:
        raise SandboxError(f"--site {OLD_PYTHON}: this machine has no Python 3.9", hint="pyenv install 3.9")
    if OWN_TMP in quirks and is_chroot():
        raise SandboxError(f"--site {OWN_TMP}: slurmstepd joins the mounts of a job by setns(2), which leads out of "
                           "this chroot", hint="Take a container, or pivot_root, instead of chroot")
    if TWO_NETWORKS in quirks and not has_netns:
        raise SandboxError(f"--site {TWO_NETWORKS}: only with --netns")
    if UNKNOWN_HOSTS in quirks and has_netns:
        raise SandboxError(f"--site {UNKNOWN_HOSTS}: only without --netns")
    if has_own_tmp(quirks) and folder.is_relative_to("/tmp"):  # noqa: S108 - a comparison
        raise SandboxError(f"{folder}: nodes of this site have a /tmp of their own, and would not see it",
                           hint=f"Choose another --dir, such as {ROOM}/{folder.name}")


def is_chroot() -> bool:
    """Whether / is not the root of this mount namespace: who joins that, even from within, finds another / (setns(2)).
    """
    there = run_command(["nsenter", f"--mount=/proc/{os.getpid()}/ns/mnt", "stat", "--format=%d:%i", "/"]).strip()
    here = Path("/").stat()
    return there != f"{here.st_dev}:{here.st_ino}"


def old_python() -> Path | None:
    """The folder that holds bin/python3.9 and its library; None where this machine has none."""
    found = [Path(path).resolve().parent.parent for path in filter(None, [shutil.which("python3.9")])]
    found += sorted(Path.home().glob(".pyenv/versions/3.9.*"))
    return next((prefix for prefix in found if (prefix / "bin" / "python3.9").exists()), None)


def has_own_tmp(quirks: Iterable[str]) -> bool:
    """Whether the nodes' /tmp is not this machine's."""
    return any(word.startswith("tmp-") for word in quirks)


def room(usual: Path, quirks: Iterable[str]) -> Path:
    """Where a sandbox of such a site lies, unless somebody says where."""
    return ROOM if has_own_tmp(quirks) else usual


def settings(folder: Path, quirks: Iterable[str]) -> dict[str, str]:
    """The lines that these quirks add to slurm.conf."""
    return {key: value.replace("{dir}", str(folder)) for word in quirks for key, value in QUIRKS[word].settings.items()}


def lay_out(folder: Path, quirks: Sequence[str], nodes: Sequence[str]) -> None:
    """Make all files and mounts of these quirks; nodes see them once their slurmd starts."""
    for quirk in (QUIRKS[word] for word in quirks):
        for name, text in quirk.files.items():
            _write(folder / name, text.replace("{dir}", str(folder)))
        for path, text in quirk.programs.items():
            _write(_layer_of(folder, Path(path)) / Path(path).name, text)
        for path, target in quirk.links.items():
            (_layer_of(folder, Path(path)) / Path(path).name).symlink_to(target.replace("{dir}", str(folder)))
        for pattern in quirk.hidden:
            for found in Path("/").glob(pattern.removeprefix("/")):
                lay_whiteout(folder, found)
    if OTHER_SHELL in quirks:
        _write(_layer_of(folder, Path("/etc/passwd")) / "passwd", _with_shell("/usr/local/bin/csh"))
    for node in nodes:
        for quirk in (QUIRKS[word] for word in quirks):
            _lay_out_disks(quirk, folder, node)
    with (folder / "places").open("a") as file:
        rows = [row for word in quirks for row in QUIRKS[word].places]
        if OLD_PYTHON in quirks:
            (folder / "python-3.9").mkdir()   # pyenv's lies in a home that ordinary users may not enter
            rows.append((str(old_python()), "{dir}/python-3.9"))
        file.writelines(f"{source} {target}\n".replace("{dir}", str(folder)) for source, target in rows)


def _with_shell(shell: str) -> str:
    """This machine's /etc/passwd in which the sandbox's users have another login shell."""
    rows = [line.split(":") for line in Path("/etc/passwd").read_text().splitlines()]
    return "".join(":".join([*row[:-1], shell] if row[0] in USERS else row) + "\n" for row in rows)


def _lay_out_disks(quirk: Quirk, folder: Path, node: str) -> None:
    named = {"dir": str(folder), "node": node}
    for source, target in quirk.places:
        for path in (source, target):
            Path(path.format(**named)).mkdir(mode=0o755, parents=True, exist_ok=True)
    for path, quirks in quirk.disks.items():
        # Mounted once, by the sandbox: a slurmd that is started again finds what was there.
        run_command(["mount", "-t", "tmpfs", "-o", quirks, "tmpfs", path.format(**named)])


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    modes.set_mode(path, 0o755)


# --- what nodes see -----------------------------------------------------------------------------------------------


def lay_whiteout(folder: Path, path: Path) -> None:
    """Hide a file of this machine from the nodes; they see it no more once their slurmd starts."""
    layer = _layer_of(folder, path)
    if not os.path.lexists(layer / path.name):
        # A whiteout: in the upper one of two folders that lie over each other it hides the file of its name in the
        # lower one (overlayfs). An empty file over the command would not do: `command -v` still finds it.
        os.mknod(layer / path.name, stat.S_IFCHR, os.makedev(0, 0))


def _layer_of(folder: Path, path: Path) -> Path:
    layer = folder / "site" / path.parent.resolve().relative_to("/")
    layer.mkdir(parents=True, exist_ok=True)
    return layer


def covers(folder: Path) -> Pairs:
    """Which folders lie over which on every node, for the commands that are hidden or another one there."""
    layers = sorted({entry.parent for entry in (folder / "site").glob("**/*") if not entry.is_dir()})
    return tuple((layer, Path("/") / layer.relative_to(folder / "site")) for layer in layers)


def places(folder: Path, node: str) -> Pairs:
    """Which folders stand in place of which on this node."""
    file = folder / "places"
    rows = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return tuple((Path(source.replace("{node}", node)), Path(target)) for source, target in rows)
