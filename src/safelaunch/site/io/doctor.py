"""What `safelaunch doctor` asks: Slurm of its settings and limits, and nodes of a small job what a run can do."""

from __future__ import annotations

import contextlib
import grp
import json
import os
import random
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from safelaunch.base.io import owners
from safelaunch.base.io.probe import run_in_child
from safelaunch.errors import ParseError
from safelaunch.node.site.sitelook import texts
from safelaunch.nodehealth.checks.results import CheckReport, parse_report
from safelaunch.nodehealth.io.nodebench import PORT_TRIES, PORTS
from safelaunch.nodehealth.io.nodechecks import ANSWER_S, QUEUE_S
from safelaunch.run.io import runfolder
from safelaunch.site.noderows import NodeAnswers, TeamAccess
from safelaunch.site.siteanswers import (
    LIMIT_FORMAT,
    QOS_FORMAT,
    SiteAnswers,
    parse_config,
    parse_limits,
    parse_partition,
)
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.noderound import NodeProgram, NodeRound, Target
from safelaunch.slurm.io.slurm import Command, Result
from safelaunch.slurm.nodeset import expand

ASK_S = 20.0            # above a client's own time limit, MessageTimeout (10 s)
JOB_LIMIT_S = 900.0     # of the small job: what is left if this process is killed
LOOK_S = 20.0           # of a node's own look: its slowest program has 15 s
MEET_S = 20.0
FOLDER_S = 10.0
MODULES = ("addresses", "children", "host", "checks.answer", "checks.disk", "bench.work", "bench.pair",
           "site.sitelook")


def questions(user: str, partition: str | None, options: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The commands that Slurm is asked, by the names of their answers."""
    job = [*options, *([f"--partition={partition}"] if partition else []), "--wrap=true"]
    return {
        "config": slurm.show_config(),
        "partition": slurm.show_partitions(),
        "limits": slurm.show_limits(f"associations user={user}", LIMIT_FORMAT),
        "qos": slurm.show_limits("qos", QOS_FORMAT),
        "plain": slurm.test_only(job), "dependent": slurm.test_only(["--dependency=singleton", *job]),
    }


def ask_slurm(partition: str | None, options: Sequence[str], env: Mapping[str, str]) -> SiteAnswers:
    """All that Slurm says from here; the questions run beside each other."""
    asked = questions(owners.name_of(os.getuid()), partition, options)
    begun = {name: Command(argv, env, ASK_S) for name, argv in asked.items()}
    told = {name: command.wait() for name, command in begun.items()}
    text = {name: result.stdout if result.is_ok else None for name, result in told.items()}
    limits, qos = text["limits"], text["qos"]
    return SiteAnswers(
        None if text["config"] is None else parse_config(text["config"]),
        None if text["partition"] is None else parse_partition(text["partition"], partition),
        None if not limits or qos is None else parse_limits(limits, qos),
        _refusal(told["plain"]), _refusal(told["dependent"]))


def _refusal(result: Result) -> str | None:
    """Why sbatch would not take a job; "" = it would, None = no clear answer."""
    if result.is_unknown or result.is_missing:
        return None
    return "" if result.is_ok else " ".join(slurm.said(result).split())


def ask_folder(folder: str, group: str) -> TeamAccess:
    """Whether members of a group can get to a folder."""
    try:
        found = grp.getgrnam(group)
    except KeyError:
        return TeamAccess(group, trouble=f"there is no group {group!r} on this machine")
    answer = run_in_child(lambda: [str(path) for path in runfolder.closed_to(
        found.gr_gid, [Path(folder), *Path(folder).parents])], FOLDER_S)
    if not answer.is_ok or answer.value is None:
        return TeamAccess(group, trouble="the folder does not answer" if answer.late else str(answer.error))
    return TeamAccess(group, found.gr_gid in (os.getgid(), *os.getgroups()), tuple(answer.value))


@dataclass(frozen=True)
class SmallJob:
    """The nodes of a job of ours; `trouble`: why there is none."""

    id: str = ""
    nodes: tuple[str, ...] = ()
    trouble: str = ""


@contextlib.contextmanager
def small_job(options: Sequence[str], env: Mapping[str, str], say: Callable[[str], None]) -> Iterator[SmallJob]:
    """A job of two nodes, for steps from here; it is cancelled afterwards, also where Slurm's answer got lost."""
    name = f"safelaunch-doctor-{secrets.token_hex(4)}"
    argv = slurm.allocate(name, ["--nodes=2", "--ntasks-per-node=1", *options], QUEUE_S, JOB_LIMIT_S)
    try:
        result = slurm.run(argv, env, QUEUE_S + ASK_S)
        granted = re.search(r"Granted job allocation (\d{1,12})", result.stderr + result.stdout)
        if not result.is_ok or granted is None:
            yield SmallJob(trouble=" ".join(slurm.said(result).split()))
            return
        told = slurm.run(slurm.squeue((f"--jobs={granted[1]}",), "%N"), env, ASK_S)
        try:
            nodes = tuple(expand(told.stdout.strip())) if told.is_ok else ()
        except (ParseError, ValueError):
            nodes = ()
        yield SmallJob(granted[1], nodes, "" if nodes else "squeue does not name its nodes")
    finally:
        ended = slurm.run(slurm.scancel_named(owners.name_of(os.getuid()), name), env, ASK_S)
        if not ended.is_ok:
            say(f"the small job could not be cancelled ({slurm.said(ended)}): it can last for {JOB_LIMIT_S / 60:.0f} "
                f"minutes more; to end it: scancel --name={name}")


def ask_nodes(job: SmallJob, options: Sequence[str], env: Mapping[str, str]) -> NodeAnswers:
    """Each node's own look, then a TCP connection between the first two."""
    target = Target(job.id, job.nodes)
    asked = NodeRound(target, env, NodeProgram(MODULES), deadline_s=LOOK_S + ANSWER_S, read=parse_report, ask=lambda
                      node: {"node": node, "job": job.id, "options": list(options)})
    asked.wait()
    silent = {one.node: one.why for one in asked.silent}
    addresses = {node: texts(json.loads(line), "addresses") for node, line in asked.lines.items()}
    pair = [node for node in job.nodes if addresses.get(node)][:2]
    met = _meet(job, pair, addresses[pair[0]], env) if len(pair) == 2 else ()
    return NodeAnswers(asked.answers, silent, met)


def _meet(job: SmallJob, pair: Sequence[str], addresses: Sequence[str],
          env: Mapping[str, str]) -> tuple[CheckReport, ...]:
    """What two nodes say of a connection of the second to the first, by its name or an address."""
    first, second = pair
    common = {"token": secrets.token_hex(16), "ports": random.sample(PORTS, PORT_TRIES), "deadline_s": int(MEET_S),
              "addresses": [first, *addresses]}
    words = {first: {**common, "node": first, "peer": second, "is_first": True},
             second: {**common, "node": second, "peer": first, "is_first": False}}
    asked = NodeRound(Target(job.id, (first, second)), env, NodeProgram(MODULES), deadline_s=MEET_S + ANSWER_S,
                      ask=words.__getitem__, read=parse_report)
    asked.wait()
    return asked.answers
