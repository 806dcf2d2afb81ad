"""safelaunch nodes: which nodes are under suspicion, and why; suspect, clear, check and measure them by hand."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import click

from safelaunch.base.io import owners
from safelaunch.base.io.probe import run_in_child
from safelaunch.config import resolve as config
from safelaunch.config.io import configfiles
from safelaunch.errors import ParseError, RunFolderError, UsageError
from safelaunch.launch.settings import Suspects
from safelaunch.nodehealth.io import ledger
from safelaunch.nodehealth.ledger import CLEARED, NodeEvidence, Standing, clusters_of, of_cluster, standings
from safelaunch.nodehealth.ledgerlines import is_node_name
from safelaunch.nodehealth.nodeuse import NodeRate, judge_fleet, rate_evidence
from safelaunch.run.io import clustername
from safelaunch.slurm import nodefold, nodeset, slurmtext
from safelaunch.slurm.io import slurm
from safelaunch.verbs.common import runs, talk
from safelaunch.verbs.nodes import nodetable
from safelaunch.verbs.nodes.nodebench import AskedBench, measure_nodes
from safelaunch.verbs.nodes.nodecheck import Asked, check_nodes, sruns_own

_Command = TypeVar("_Command", bound=Callable[..., object])

# node.bench.main.NAMES, without its imports, and what pairs of nodes measure.
BENCHES = ("matmul", "gpu_memory", "memory", "disk_write", "disk_read", "bus")
ASK_SLURM_S = 4.0   # a person waits; without an answer his word stands
MOST_NODES = 10_000   # "n[0-99999999]" would fill the memory before it can be refused
WHY_MAX_CHARS = 500
HOW_TO_NAME = "write nodes as Slurm does: n7 or n[1-3,7]"
HOW_TO_SHARE = "mkdir DIR && chgrp TEAM DIR && chmod 3770 DIR"


class Fleet(NamedTuple):
    """What a ledger says of a cluster's nodes, and which clusters it knows."""

    standings: tuple[Standing, ...]
    rates: dict[str, NodeRate]
    clusters: tuple[str, ...]


@dataclass(frozen=True)
class Ledger:
    """The ledger that is meant, and how it is weighed."""

    folder: Path
    half_life_s: float
    cluster: str   # Slurm's ClusterName; "" = unknown

    def read(self) -> tuple[NodeEvidence, ...]:
        """The evidence of all clusters; raises RunFolderError when the folder does not answer."""
        return ledger.parse_raw(self._raw())

    def fleet(self, now: float) -> Fleet:
        """This cluster's nodes with evidence and their rates of failures; raises RunFolderError."""
        raw = self._raw()
        known, uses = ledger.parse_raw(raw), ledger.parse_uses(raw)
        mine = of_cluster(known, self.cluster)
        rates = judge_fleet(mine, uses, self.cluster, now)
        found = standings((*mine, *rate_evidence(mine, uses, rates, now)), now, self.half_life_s)
        return Fleet(found, {rate.node: rate for rate in rates}, clusters_of(known))

    def _raw(self) -> list[list[str]]:
        return runs.ask(lambda: ledger.read_raw(self.folder), f"the ledger of nodes in {self.folder}")

    def standings(self, now: float) -> tuple[Standing, ...]:
        """This cluster's nodes with evidence, the worst first; raises RunFolderError."""
        return standings(of_cluster(self.read(), self.cluster), now, self.half_life_s)

    def append(self, evidences: list[NodeEvidence]) -> None:
        """Write it down; raises RunFolderError when that is not done."""
        answer = run_in_child(lambda: ledger.append(self.folder, evidences), runs.FOLDER_DEADLINE_S)
        if answer.late:
            raise RunFolderError(f"{self.folder} does not answer for {runs.FOLDER_DEADLINE_S:.0f} s: nothing was "
                                 "written down", hint="its filesystem is frozen or slow; try again")
        if not answer.is_ok:
            raise RunFolderError(f"the ledger of nodes cannot be written: {answer.error}",
                                 hint="--ledger DIR names another one; see `id` for the groups that you are in")


def _ledger_option(function: _Command) -> _Command:
    return click.option("--ledger", "folder", metavar="DIR", help="Another ledger, such as your team's; by default "
                        "suspects.ledger of the site's or your own config, else your own.")(function)


def _why_option(function: _Command) -> _Command:
    return click.option("--why", required=True, metavar="TEXT", help="The reason, for whoever looks later.")(function)


@click.group(invoke_without_command=True)
@click.option("--all", "show_all", is_flag=True, help="Also nodes with too little evidence for an exclusion.")
@_ledger_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object, documented in docs/verbs.md; it has all nodes.")
@click.pass_context
def command(context: click.Context, show_all: bool, folder: str | None, as_json: bool) -> int:
    """Show this cluster's nodes that are excluded from new attempts: why, since whose run, until when."""
    if context.invoked_subcommand is not None:
        context.obj = folder
        return 0
    here, now = _ledger(folder), time.time()
    fleet = here.fleet(now)
    found = fleet.standings
    there = _there() if found else None
    gone = [one.node for one in found if there is not None and one.node not in there]
    others = [name for name in fleet.clusters if name != here.cluster]
    if as_json:
        talk.emit_json({"v": 1, "ledger": str(here.folder), "now_t": now, "forget_after_s": here.half_life_s,
                        "cluster": here.cluster or None, "other_clusters": others,
                        "fleet": nodetable.fleet_as_json(fleet.rates.values()),
                        "nodes": [{**nodetable.as_json(one, now, here.half_life_s, fleet.rates.get(one.node)),
                                   "is_known": None if there is None else one.node in there} for one in found]})
        return 0
    shown = [one for one in found if show_all or one.until_t is not None]
    nodetable.show(shown, now, fleet.rates, gone)
    _talk_of_the_rest(here, len(shown), len(found) - len(shown), others)
    return 0


@command.command()
@click.argument("nodes")
@_why_option
@_ledger_option
@click.pass_obj
def suspect(outer: str | None, nodes: str, why: str, folder: str | None) -> int:
    """Keep NODES (such as n7 or n[1-3,7]) out of the attempts that start from now on."""
    names, reason, here, now = _nodes(nodes), _reason(why), _ledger(folder or outer), time.time()
    _check_known(names)
    before = {one.node: one for one in here.standings(now)}
    me = owners.name_of(os.getuid())
    here.append([NodeEvidence(name, "person", now, reason, me, cluster=here.cluster) for name in names])
    after = {one.node: one for one in here.standings(now)}
    for name in names:
        talk.say(_changed(name, before.get(name), after.get(name), now))
    return 0


@command.command()
@click.argument("nodes")
@_why_option
@_ledger_option
@click.pass_obj
def clear(outer: str | None, nodes: str, why: str, folder: str | None) -> int:
    """Take back what is known against NODES so far; what comes later counts."""
    names, reason, here, now = _nodes(nodes), _reason(why), _ledger(folder or outer), time.time()
    known = {one.node: one for one in here.standings(now)}
    me = owners.name_of(os.getuid())
    # Not before the newest evidence: the node that wrote it may have a clock that is ahead of this one.
    here.append([NodeEvidence(name, CLEARED, max(now, known[name].known[0].t), reason, me, cluster=here.cluster)
                 for name in names if name in known])
    for name in names:
        was = known.get(name)
        talk.say(f"{name}: there is no evidence against it" if was is None else
                 f"{name} is cleared: {_pieces(len(was.known))} taken back (its score was {was.score:.1f})")
    return 0


@command.command()
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[NODES] [-- SRUN_FLAGS]")
@click.option("--local", "is_local", is_flag=True, help="This machine, without Slurm.")
@click.option("--level", type=click.Choice(("light", "full", "isolate")), default="light", show_default=True,
              help="light takes seconds, full minutes; isolate: do the GPUs work right without your program?")
@click.option("--path", "paths", multiple=True, metavar="DIR", help="A folder to write and read; may be repeated.")
@click.option("--skip", multiple=True, metavar="CHECK", help="A check to leave out (docs/nodes.md); may be repeated.")
@click.option("--gpus", type=click.IntRange(0, 4096), metavar="N", help="How many GPUs each node should have.")
@click.option("--deadline", "deadline_s", type=click.IntRange(1, 3600), metavar="SECONDS",
              help="For each node's checks (default 60; full 300).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, documented in docs/verbs.md.")
def check(words: tuple[str, ...], is_local: bool, level: str, paths: tuple[str, ...], skip: tuple[str, ...],
          gpus: int | None, deadline_s: int | None, as_json: bool) -> int:
    """Check whether a training can be started on NODES; by default on those of the job around this shell.

    Nodes outside of it get a short job each. Exit code 13: a node has failed, or has not answered.
    """
    first = 1 if words and not words[0].startswith("-") else 0
    names = _nodes(words[0]) if first else ()
    return check_nodes(Asked(names, is_local, level, paths, skip, gpus, deadline_s, sruns_own(words[first:])), as_json)


@command.command()
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[NODES] [-- SRUN_FLAGS]")
@click.option("--local", "is_local", is_flag=True, help="This machine, without Slurm.")
@click.option("--path", "paths", multiple=True, metavar="DIR", help="A folder to write and read; may be repeated.")
@click.option("--skip", multiple=True, type=click.Choice(BENCHES), help="What not to measure; may be repeated.")
@click.option("--python", metavar="FILE", help="The training's interpreter, for PyTorch (default: python of PATH).")
@click.option("--repeats", type=click.IntRange(1, 100), default=5, show_default=True, help="Of each measurement.")
@click.option("--tolerance", type=click.FloatRange(0.1, 90), default=1.5, show_default=True, metavar="PERCENT",
              help="How much slower than the others a node may be.")
@click.option("--deadline", "deadline_s", type=click.IntRange(1, 3600), default=180, show_default=True,
              metavar="SECONDS", help="For each node's measurements.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, documented in docs/verbs.md.")
def bench(words: tuple[str, ...], is_local: bool, paths: tuple[str, ...], skip: tuple[str, ...], python: str | None,
          repeats: int, tolerance: float, deadline_s: int, as_json: bool) -> int:
    """Measure how fast NODES are, and find the slow one; by default those of the job around this shell.

    Nodes outside of it get a short job each. Measure idle nodes: what else runs there counts. Exit code 13: a node is
    surely slow, has failed, or has not answered.
    """
    first = 1 if words and not words[0].startswith("-") else 0
    names = _nodes(words[0]) if first else ()
    return measure_nodes(AskedBench(names, is_local, paths, skip, python, repeats, tolerance / 100, deadline_s,
                                    sruns_own(words[first:])), as_json)


def _ledger(folder: str | None) -> Ledger:
    """The ledger of --ledger, else of the site's and the user's config; raises UsageError, ConfigError."""
    suspects, cluster = _configured(), clustername.here()
    if folder is not None:
        if not runs.ask(lambda: Path(folder).is_dir(), folder):
            raise UsageError(f"--ledger: {folder} is not a folder", hint=f"to make a team's: {HOW_TO_SHARE}")
        return Ledger(Path(folder).absolute(), suspects.forget_after_s, cluster)
    try:
        return Ledger(ledger.folder_of(suspects, os.environ), suspects.forget_after_s, cluster)
    except OSError as error:
        raise UsageError(str(error.strerror), hint="name one: --ledger DIR") from error


def _configured() -> Suspects:
    """`suspects` of the site's and the user's config, without any train.yaml."""
    sources = configfiles.read_sources(None, os.environ)
    if not sources:
        return Suspects()
    return config.resolve(sources, ["name=nodes", "command=train"], os.environ,
                          find_plugin=configfiles.find_plugin).settings.suspects


def _nodes(text: str) -> tuple[str, ...]:
    """The names that NODES stands for; raises UsageError."""
    size = sum(max(0, int(last) - int(first)) for first, last in re.findall(r"([0-9]{1,18})-([0-9]{1,18})", text))
    if size > MOST_NODES or len(text) > MOST_NODES:
        raise UsageError(f"{text[:60]}: more than {MOST_NODES} nodes")
    try:
        names = tuple(dict.fromkeys(nodeset.expand(text)))
    except ParseError as error:
        raise UsageError(error.message, hint=HOW_TO_NAME) from error
    wrong = [name for name in names if not is_node_name(name)]
    if wrong or not names:
        raise UsageError(f"{(wrong or [text])[0]!r} is not a node's name", hint=HOW_TO_NAME)
    return names


def _reason(why: str) -> str:
    reason = talk.clean(" ".join(why.split()))
    if not reason:
        raise UsageError("--why is missing: other people will read the reason",
                         hint='for instance --why "Xid 79 twice, ticket 4711"')
    return reason[:WHY_MAX_CHARS]


def _check_known(names: tuple[str, ...]) -> None:
    """Refuse a name that Slurm does not know: it would be written down and do nothing. Slurm's silence refuses none."""
    result = slurm.run(slurm.show_nodes(nodefold.fold(names)), slurm.outside_job(os.environ), ASK_SLURM_S)
    unknown = re.findall(r"Node ([A-Za-z0-9._-]+) not found", result.stdout + result.stderr)
    if unknown:
        raise UsageError(f"Slurm knows no node {', '.join(unknown)}; nothing was written", hint="see: sinfo -N")


def _there() -> tuple[str, ...] | None:
    """All nodes of this cluster; None = Slurm does not say, or an answer without any node."""
    result = slurm.run(slurm.sinfo(None), slurm.outside_job(os.environ), ASK_SLURM_S)
    return slurmtext.all_nodes(result.stdout) or None if result.is_ok else None


def _changed(name: str, before: Standing | None, after: Standing | None, now: float) -> str:
    if after is None or after.until_t is None:   # the clock went back beyond what is believed
        return f"{name} is suspected, and not excluded"
    left = f"until {talk.moment(after.until_t)} ({talk.span(after.until_t - now)})"
    if before is not None and before.until_t is not None:
        longer = after.until_t > before.until_t + 1
        return f"{name} stays excluded, {'now ' if longer else ''}{left}"
    return f"{name} is excluded from new attempts {left}"


def _talk_of_the_rest(here: Ledger, shown: int, hidden: int, others: list[str]) -> None:
    more = [f"{hidden} more with too little evidence: --all"] if hidden else []
    if others:   # else nobody has more than one, and its name is no news
        where = here.cluster or "a cluster that nobody names"
        more.append(f"these are the nodes of {where}; there is evidence of {', '.join(others)}, too: look there")
    if not shown:
        more.insert(0, f"no node is excluded (ledger: {here.folder})")
    if more:
        talk.say("; ".join(more))


def _pieces(count: int) -> str:
    return "one piece of evidence is" if count == 1 else f"{count} pieces of evidence are"
