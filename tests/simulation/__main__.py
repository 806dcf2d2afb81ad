"""`python -m tests.simulation --seeds A..B [--shard i/n] [--resume FILE]`, `--pairs`, or `--seed N -v` to see one."""

from __future__ import annotations

import argparse
import collections
import gc
import json
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from multiprocessing.pool import Pool
from pathlib import Path
from typing import IO

from tests.simulation.golden import GOLDEN
from tests.simulation.pairs import pairs
from tests.simulation.run import run, run_seed
from tests.simulation.scenario import Scenario, from_json, make
from tests.simulation.shrink import shrink
from tests.simulation.sim import Outcome

PATIENCE_S = 60.0     # a run takes 0.05 s
SHOW_EVERY_S = 20.0


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
    parser.add_argument("--only", metavar="FIELD", choices=sorted(Scenario.__dataclass_fields__),
                        help="only seeds whose scenario sets this field: before, nan, slow, min_nodes, has_checks, …")
    parser.add_argument("--shard", default="1/1", help="i/n: only every n-th seed, beginning with the i-th")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--resume", help="a file of results; seeds that stand in it are not run again")
    parser.add_argument("--pairs", nargs="?", const="all", choices=("all", "brief"),
                        help="every fault at every outside call of golden runs; brief: looks and writes thinned out")
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


def _seeds(args: argparse.Namespace, done: set[object]) -> Iterator[int]:
    first, _, last = args.seeds.partition("..")
    index, _, count = args.shard.partition("/")
    for seed in range(int(first), int(last)):
        is_mine = seed % int(count) == int(index) % int(count) and seed not in done
        if is_mine and (args.only is None or getattr(make(seed), args.only)):
            yield seed


def _pairs(args: argparse.Namespace) -> int:
    """Each pair once; a violated one is printed with the scenario to replay it by --scenario FILE."""
    done = _Tally(args.resume, "pairs")
    index, shards = (int(word) for word in args.shard.split("/"))
    every = (pair for name in GOLDEN for pair in pairs(name, is_brief=args.pairs == "brief"))
    mine = (pair for number, pair in enumerate(every)
            if number % shards == index % shards and pair[0] not in done.known)
    with _pool(args) as pool:
        for name, how, violations, scenario in pool.imap_unordered(_work_pair, mine, chunksize=16):
            done.take(name, how, 0.0, violations, f"{scenario}\n    replay: save that line, then python -m "
                                                  f"tests.simulation --scenario FILE -v")
    return done.close(args.jobs)


def _many(args: argparse.Namespace) -> int:
    done = _Tally(args.resume, "seeds")
    with _pool(args) as pool:
        for seed, how, virtual_s, violations in pool.imap_unordered(_work, _seeds(args, done.known), chunksize=4):
            done.take(seed, how, virtual_s, violations, f"replay: python -m tests.simulation --seed {seed} -v --shrink")
    return done.close(args.jobs)


def _pool(args: argparse.Namespace) -> Pool:
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)   # a tenth of a seed's time went into looking for garbage
    return multiprocessing.get_context("fork").Pool(args.jobs, maxtasksperchild=500)


def _work(seed: int) -> tuple[int, str, float, list[str]]:
    outcome = _run(make(seed))
    return seed, outcome.how, outcome.virtual_s, outcome.violations


def _work_pair(pair: tuple[str, Scenario]) -> tuple[str, str, list[str], str]:
    outcome = _run(pair[1])
    return pair[0], outcome.how, outcome.violations, pair[1].to_json()


class Endless(BaseException):
    """A loop that never sleeps; no Exception, which would pass for the end of a process under test."""


def _run(scenario: Scenario) -> Outcome:
    """How a scenario went; one without an end is a finding, too."""
    def wake(number: int, frame: object) -> None:
        raise Endless

    signal.signal(signal.SIGPROF, wake)
    signal.setitimer(signal.ITIMER_PROF, PATIENCE_S)
    try:
        return run(scenario)
    except Endless:
        return Outcome(scenario, "(endless)", [f"0.0 s: no end after {PATIENCE_S:.0f} s of processor time"])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


class _Tally:
    """What has been run, and how it went; kept in a file where one is named, and shown now and then."""

    def __init__(self, resume: str | None, what: str) -> None:
        self.what, self.count, self.bad, self.virtual_s = what, 0, 0, 0.0
        self.hows = collections.Counter[str]()
        self.begun_s = self.shown_s = time.monotonic()
        self.known: set[object] = set()
        self.log: IO[str] | None = None
        if resume is not None:
            file = Path(resume)
            lines = file.read_text().splitlines() if file.exists() else []
            rows = [json.loads(line) for line in lines if line.endswith("}")]
            self.known, self.bad = {row["seed"] for row in rows}, sum(bool(row["violations"]) for row in rows)
            self.log = file.open("a")

    def take(self, name: object, how: str, virtual_s: float, violations: list[str], replay: str) -> None:
        """One more."""
        self.count += 1
        self.virtual_s += virtual_s
        self.hows[how] += 1
        if violations:
            self.bad += 1
            print(f"{self.what[:-1]} {name}: {how}: {violations[0].splitlines()[0]}\n    {replay}", flush=True)
        if self.log is not None:
            print(json.dumps({"seed": name, "how": how, "violations": violations}), file=self.log, flush=True)
        if time.monotonic() - self.shown_s > SHOW_EVERY_S:
            self.shown_s = time.monotonic()
            print(f"{self.count:,} {self.what}, {self.bad} violations, {self.shown_s - self.begun_s:.0f} s", flush=True)

    def close(self, jobs: int) -> int:
        """The exit code, after the last line."""
        wall_s = time.monotonic() - self.begun_s
        cpu_s = sum(resource.getrusage(who).ru_utime + resource.getrusage(who).ru_stime
                    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        hows = ", ".join(f"{count:,} {how}" for how, count in self.hows.most_common())
        virtual = f"{self.virtual_s / 3600:,.0f} simulated hours, " if self.virtual_s else ""
        earlier = f" (and {len(self.known):,} in earlier turns)" if self.known else ""
        print(f"({virtual}{wall_s:.0f} s on {jobs} processes, {cpu_s:.0f} s of processor time: {hows})")
        print(f"{self.count:,} {self.what}{earlier}, {self.bad} violations", flush=True)
        return 1 if self.bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
