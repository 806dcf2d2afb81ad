"""`safelaunch sandbox`: a real Slurm of N nodes on this machine, whose nodes can be crashed and silenced."""

from __future__ import annotations

import json
import shlex
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from safelaunch.errors import UsageError
from safelaunch.sandbox import daemons, registry, sites
from safelaunch.sandbox.cluster import Sandbox
from safelaunch.sandbox.users import TEAM, USERS

_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_which = click.option("--name", "which", metavar="NAME", help="The sandbox, when several are up (its name or folder).")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """A real Slurm of N nodes on this machine, for trying things out and for tests.

    Every node has its own host name, 8 fake GPUs, and can be crashed, silenced and healed. Daemons run as root, jobs as
    the ordinary users sl-alice and sl-bob (both in group sl-team), who are created when missing. Nothing in /etc/slurm
    or /run is touched, and several sandboxes can run at once.
    """


@command.command()
@click.option("--nodes", type=click.IntRange(1, 1024), default=4, show_default=True)
@click.option("--cpus", type=click.IntRange(1, 1024), default=8, show_default=True, help="CPUs of each node.")
@click.option("--gpus", type=click.IntRange(0, 64), default=8, show_default=True, help="Fake GPUs of each node.")
@click.option("--memory-mb", type=click.IntRange(1), default=2000, show_default=True, help="Memory of each node.")
@click.option("--accounting", is_flag=True, help="Let sacct know the jobs: slurmdbd on a MariaDB of its own.")
@click.option("--netns", is_flag=True, help="A network of its own, so that nodes can be cut off: crash --cut.")
@click.option("--preemption", is_flag=True, help="Partition 'high' preempts 'low' (cancel) and 'low-requeue'.")
@click.option("--site", "quirks", multiple=True, type=click.Choice(tuple(sites.QUIRKS)), metavar="WORD",
              help=f"A site that differs; may be repeated. {sites.describe()}.")
@click.option("--cgroup", is_flag=True, help="Hold jobs to their memory and devices, and track them, by cgroups (v1).")
@click.option("--name", default="default", show_default=True, help="Its name for the other verbs.")
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path), help=f"Its folder, new or empty; default: {registry.ROOT}/NAME."
)
@click.option("--conf", "settings", multiple=True, metavar="KEY=VALUE", help="A line for slurm.conf; may be repeated.")
@_json
def up(
    nodes: int, cpus: int, gpus: int, memory_mb: int, accounting: bool, netns: bool, preemption: bool,
    quirks: Sequence[str], cgroup: bool, name: str, folder: Path | None, settings: Sequence[str], as_json: bool,
) -> None:
    """Start a sandbox and print the line that makes this shell use it.

    On its nodes the names n0, n1, … resolve: to 127.0.0.1, with --netns to an address of each node's own.
    """
    conf = dict(map(_parse_setting, settings))
    began = time.monotonic()
    sandbox = Sandbox.up(
        folder or sites.room(registry.ROOT, quirks) / name, nodes, name=name, cpus=cpus, gpus=gpus,
        memory_mb=memory_mb, conf=conf, accounting=accounting, netns=netns, preemption=preemption, site=quirks,
        cgroup=cgroup, names=True,
    )  # fmt: skip
    took_s = time.monotonic() - began
    login = replace(daemons.machine(sandbox.dir, daemons.LOGIN), places=())
    first = f"Log in:      {_by_root(shlex.join(login.enter(['bash'])))}\n" if netns else ""
    names = "" if daemons.knows_names(sandbox.dir) else (
        "Names:       n0, n1, … do not resolve on the nodes; with --netns they do\n")
    click.echo(
        f"Sandbox '{name}' is up: {nodes} nodes (n0 … n{nodes - 1}) in {sandbox.dir}, started in {took_s:.1f} s.\n"
        f"{first}{names}"
        f'Use it:      eval "$(safelaunch sandbox env {name})"\n'
        f"Jobs as:     {_by_user(USERS[0], f'srun -N{nodes} hostname')}   (or {USERS[1]}, both in group {TEAM})\n"
        f"End it:      safelaunch sandbox down {name}",
        err=True,
    )
    _print_env(sandbox, as_json)


def _by_root(words: str) -> str:
    """A command line for root; who has no sudo and has started a sandbox is root."""
    return f"sudo {words}" if shutil.which("sudo") else words


def _by_user(user: str, words: str) -> str:
    """A command line that runs as this user, in this shell's environment."""
    return f"sudo -E -u {user} {words}" if shutil.which("sudo") else f"runuser -u {user} -- {words}"


@command.command()
@click.argument("name", default="default")
def down(name: str) -> None:
    """End a sandbox with all its jobs and remove its folder; without NAME the one called default."""
    daemons.check_root()
    entry = registry.lookup(name)
    if entry is None:
        others = ", ".join(e.name for e in registry.entries())
        click.echo(f"No sandbox '{name}' is up{f' (but: {others})' if others else ''}.", err=True)
        return
    Sandbox.load(Path(entry.dir)).down()
    click.echo(f"Sandbox '{entry.name}' is down; {entry.dir} is gone.", err=True)
    if not registry.entries():
        click.echo(f"Kept for the next sandbox: the users {' and '.join(USERS)} with their group {TEAM}, and "
                   f"{registry.ROOT}. To remove it: userdel -r {USERS[0]}; userdel -r {USERS[1]}; "
                   f"groupdel {TEAM}; rm -r {registry.ROOT}", err=True)


@command.command()
@click.argument("name", required=False)
@_json
def env(name: str | None, as_json: bool) -> None:
    """Print the line that makes a shell use the sandbox: eval "$(safelaunch sandbox env)"."""
    _print_env(Sandbox.find(name), as_json)


@command.command()
@click.argument("node")
@click.option("--silent", is_flag=True, help="Stop all processes instead of killing them: no FIN, no RST.")
@click.option("--cut", is_flag=True, help="Pull its network cable; its processes go on (needs up --netns).")
@_which
def crash(node: str, silent: bool, cut: bool, which: str | None) -> None:
    """Take the power from a node: everything on it is killed at once. `ctl` is slurmctld's machine, `db` sacct's."""
    if silent and cut:
        raise UsageError("--silent and --cut are two kinds of crash: choose one")
    sandbox = Sandbox.find(which)
    sandbox.crash(node, silent=silent, cut=cut)
    did = "has crashed: all of its processes are gone"
    if cut:
        did = "is cut off: all of its processes go on, and no packet goes in or out"
    elif silent:
        did = "is silent: all of its processes are stopped"
    click.echo(f"{node} {did}. Bring it back: safelaunch sandbox heal {node}", err=True)


@command.command()
@click.argument("node")
@_which
def heal(node: str, which: str | None) -> None:
    """Bring a crashed, silent or cut node back; returns when Slurm uses it again."""
    Sandbox.find(which).heal(node)
    click.echo(f"{node} is back.", err=True)


@command.command("list")
@_json
def list_sandboxes(as_json: bool) -> None:
    """Show every sandbox of this machine."""
    up_now = registry.entries()
    if as_json:
        rows = [
            {"name": e.name, "dir": e.dir, "nodes": e.nodes, "cpus": e.cpus, "gpus": e.gpus, "memory_mb": e.memory_mb}
            for e in up_now
        ]
        click.echo(json.dumps({"v": 1, "sandboxes": rows}))
        return
    if not up_now:
        click.echo("No sandbox is up. Start one: safelaunch sandbox up", err=True)
    width = max((len(e.name) for e in up_now), default=0)
    for e in up_now:
        click.echo(f"{e.name:<{width}}  {e.nodes:>4} nodes  {e.cpus:>3} CPUs  {e.gpus:>2} GPUs  {e.dir}")


def _parse_setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--conf {text}: expected KEY=VALUE, as in slurm.conf(5)")
    return key.strip(), value.strip()


def _print_env(sandbox: Sandbox, as_json: bool) -> None:
    if as_json:
        shown = {"name": sandbox.name, "dir": str(sandbox.dir), "nodes": list(sandbox.nodes), "env": sandbox.env()}
        click.echo(json.dumps({"v": 1, **shown}))
        return
    for key, value in sandbox.env().items():
        click.echo(f"export {key}={shlex.quote(value)}")
