"""`python -m tests.simulation --seeds A..B [--shard i/n] [--resume FILE]`, `--pairs`, or `--seed N -v` to see one."""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.simulation.golden import GOLDEN
from tests.simulation.pairs import pairs
from tests.simulation.run import run, run_seed
from tests.simulation.scenario import Scenario, from_json, make
from tests.simulation.shrink import shrink
from tests.simulation.sim import Outcome


def main(argv: list[str]) -> int:
    """0 when no invariant was broken."""
    args = _parse(argv)
    if args.scenario:
        return _show(run(from_json(Path(args.scenario).read_text()), is_verbose=args.verbose))
    if args.seed is not None:
        return _one(args.seed, args.verbose, args.shrink)
    return _pairs(args) if args.pairs else _many(args)


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="0..1000", help="A..B: from A to B-1")
    parser.add_argument("--shard", default="1/1", help="i/n: only every n-th seed, beginning with the i-th")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--resume", help="a file of results; seeds that stand in it are not run again")
    parser.add_argument("--pairs", action="store_true", help="every fault at every outside call of golden runs")
    parser.add_argument("--seed", type=int, help="one seed alone")
    parser.add_argument("--scenario", help="a scenario as JSON, in a file")
    parser.add_argument("--shrink", action="store_true", help="with --seed: make the failing scenario smaller")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the timeline")
    return parser.parse_args(argv)


def _one(seed: int, is_verbose: bool, is_shrinking: bool) -> int:
    outcome = run_seed(seed, is_verbose)
    if is_shrinking and outcome.violations:
        outcome = run(shrink(make(seed)), is_verbose=True)
    return _show(outcome)


def _show(outcome: Outcome) -> int:
    scenario = outcome.scenario
    print("\n".join(outcome.timeline))
    print(scenario.to_json())
    for fault in scenario.faults:
        print(f"  {fault}")
    print(f"seed {scenario.seed}: {outcome.how} after {outcome.virtual_s:.0f} s, {outcome.attempts} attempts in "
          f"{outcome.jobs} jobs, {outcome.calls} calls to Slurm, {outcome.events} events")
    for violation in outcome.violations:
        print(f"  VIOLATED {violation}")
    return 1 if outcome.violations else 0


def _seeds(args: argparse.Namespace, done: set[int]) -> Iterator[int]:
    first, _, last = args.seeds.partition("..")
    index, _, count = args.shard.partition("/")
    for seed in range(int(first), int(last)):
        if seed % int(count) == int(index) % int(count) and seed not in done:
            yield seed


def _pairs(args: argparse.Namespace) -> int:
    """Each pair once; a violated one is printed with the scenario to replay it by --scenario FILE."""
    begun_s, count, bad = time.monotonic(), 0, 0
    index, shards = (int(word) for word in args.shard.split("/"))
    every = (pair for name in GOLDEN for pair in pairs(name))
    mine = (pair for number, pair in enumerate(every) if number % shards == index % shards)
    with multiprocessing.get_context("fork").Pool(args.jobs, maxtasksperchild=500) as pool:
        for name, scenario, violations in pool.imap_unordered(_work_pair, mine, chunksize=16):
            count += 1
            if violations:
                bad += 1
                print(f"{name}: {violations[0].splitlines()[0]}\n    {scenario}", flush=True)
    print(f"{count} pairs in {time.monotonic() - begun_s:.0f} s on {args.jobs} processes; {bad} violate an invariant")
    return 1 if bad else 0


def _work_pair(pair: tuple[str, Scenario]) -> tuple[str, str, list[str]]:
    return pair[0], pair[1].to_json(), run(pair[1]).violations


def _work(seed: int) -> tuple[int, str, float, list[str]]:
    outcome = run_seed(seed)
    return seed, outcome.how, outcome.virtual_s, outcome.violations


def _many(args: argparse.Namespace) -> int:
    done: set[int] = set()
    bad = 0
    file = Path(args.resume) if args.resume else None
    if file is not None and file.exists():
        rows = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]
        done, bad = {row["seed"] for row in rows}, sum(bool(row["violations"]) for row in rows)
    seeds = list(_seeds(args, done))
    begun_s, hows, virtual_s = time.monotonic(), collections.Counter[str](), 0.0
    log = file.open("a") if file is not None else None
    with multiprocessing.get_context("fork").Pool(args.jobs, maxtasksperchild=500) as pool:
        for seed, how, took_s, violations in pool.imap_unordered(_work, seeds, chunksize=4):
            hows[how] += 1
            virtual_s += took_s
            if violations:
                bad += 1
                print(f"seed {seed}: {how}: {violations[0].splitlines()[0]}", flush=True)
            if log is not None:
                log.write(json.dumps({"seed": seed, "how": how, "violations": violations}) + "\n")
                log.flush()
    wall_s = time.monotonic() - begun_s
    print(f"{len(seeds)} seeds in {wall_s:.0f} s on {args.jobs} processes, {virtual_s / 3600:.0f} simulated hours: "
          f"{dict(hows)}; {bad} violate an invariant (with those of earlier shards in --resume)")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
