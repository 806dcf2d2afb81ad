"""safelaunch nodes bench: which of these nodes is slow?"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from safelaunch.base.model import CHECK_FAILED
from safelaunch.nodehealth.checks.results import CheckReport
from safelaunch.nodehealth.io.nodebench import BenchedNodes, BenchQuestion, bench_nodes, bench_pairs
from safelaunch.nodehealth.pairs import PairRate, judge_pairs
from safelaunch.nodehealth.slow.bench import JudgedSpeed, Speed, add_links, judge_speed, next_commands, speed_table
from safelaunch.slurm.io import slurm
from safelaunch.slurm.io.noderound import NodeRound
from safelaunch.verbs.common import talk
from safelaunch.verbs.nodes.nodecheck import find_target

BAD = (Speed.NO_ANSWER, Speed.FAILED, Speed.SLOW)
POLL_S = 0.01


@dataclass(frozen=True)
class AskedBench:
    """What was typed."""

    nodes: tuple[str, ...]
    is_local: bool
    paths: tuple[str, ...]
    skip: tuple[str, ...]
    python: str | None
    repeats: int
    tolerance: float
    deadline_s: int
    srun: tuple[str, ...]


def measure_nodes(asked: AskedBench, as_json: bool) -> int:
    """The exit code: 0, or CHECK_FAILED where a node is surely slow, has failed or has not answered."""
    env = slurm.outside_job(os.environ)
    target = find_target("bench", asked.nodes, asked.is_local, asked.srun, env)
    words: dict[str, object] = {"paths": [str(Path(path).absolute()) for path in asked.paths],
                             "skip": [name for name in asked.skip if name != "bus"],
                             "python": asked.python, "repeats": asked.repeats}
    question, start_s = BenchQuestion(words, asked.deadline_s), time.monotonic()
    benched = bench_nodes(target, env, question, asked.tolerance, _follow)
    judged = judge_speed(benched.rounds, benched.silent, asked.tolerance)
    pairs: tuple[tuple[PairRate, ...], ...] = ((), ())
    if "bus" not in asked.skip:
        there = {node: found for node, found in benched.addresses.items() if found and node not in benched.silent}
        pairs = bench_pairs(target, env, question, asked.tolerance, _follow, there)
        judged = add_links(judged, judge_pairs(*pairs, asked.tolerance))
    took_s = time.monotonic() - start_s
    if as_json:
        talk.emit_json(_as_json(judged, benched, asked.tolerance, pairs, took_s))
    else:
        _print(judged, took_s)
    return 0 if _is_good(judged) else CHECK_FAILED


def _follow(asked: NodeRound[CheckReport], what: str) -> None:
    """Wait for a round; on a terminal with a line that says how far it is."""
    is_terminal, shown = sys.stderr.isatty(), -1
    while not asked.poll():
        done = len(asked.answers) + len(asked.silent)
        if is_terminal and done != shown:
            shown = done
            click.echo(f"\r{what}: {done} of {asked.size} have answered", nl=False, err=True)
        time.sleep(POLL_S)
    if is_terminal:
        click.echo(f"\r{what}: {asked.size} nodes, {asked.took_s:.0f} s".ljust(60), err=True)


def _print(judged: Sequence[JudgedSpeed], took_s: float) -> None:
    click.echo("\n".join(speed_table(judged)))
    counts = [f"{sum(one.speed == speed for one in judged)} {speed.value}" for speed in Speed
              if any(one.speed == speed for one in judged)]
    talk.say(f"{len(judged)} node{'s' if len(judged) > 1 else ''}, {took_s:.1f} s: {', '.join(counts)}")
    for line in next_commands(judged):
        talk.say(f"to keep it out of new attempts: {line}")


def _is_good(judged: Sequence[JudgedSpeed]) -> bool:
    return all(one.speed not in BAD for one in judged)


def _as_json(judged: Sequence[JudgedSpeed], benched: BenchedNodes, tolerance: float,
             pairs: Sequence[Sequence[PairRate]], took_s: float) -> dict[str, object]:
    return {"v": 1, "ok": _is_good(judged), "tolerance": tolerance, "took_s": round(took_s, 3),
            "rounds": len(benched.rounds), "nodes": [_of_node(one) for one in judged],
            "pairs": [{"round": number, "nodes": list(rate.pair), "gb_s": rate.gb_s, "why": rate.why}
                      for number, rates in enumerate(pairs, 1) for rate in rates]}


def _of_node(one: JudgedSpeed) -> dict[str, object]:
    return {"node": one.node, "verdict": one.speed.value, "reasons": list(one.reasons),
            "bus": None if one.link is None else {"gb_s": one.link.gb_s, "verdict": one.link.link.value},
            "measurements": [result._asdict() for result in one.results],
            "scores": [{"name": kind.name, "item": kind.item, "device": kind.device, "rate": score.rate,
                        "others": score.level, "slower_by": round(score.deficit, 5), "z": round(score.z, 2),
                        "is_slow": score.is_slow} for kind, score in one.scores.items()]}
