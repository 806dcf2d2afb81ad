"""python -m benchmarks.slow [NAME…] [--seed 1] [--times 1]: how often slow and failing nodes are found, and wrongly.

Made-up fleets and step times from seeds, judged by the real core. docs/slow.md has the figures.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Callable, Iterator

from safelaunch.nodehealth.ledger import NodeEvidence
from safelaunch.nodehealth.nodeuse import DAY_S, NodeDays, NodeUse, judge_rates
from safelaunch.nodehealth.nodeuse import judge_fleet as judge_uses
from safelaunch.nodehealth.slow.changepoint import PaceChange, PaceWatch, StepTime, follow
from safelaunch.nodehealth.slow.fleet import TOLERANCE, judge_fleet, measured_again
from safelaunch.trainlog.figures import median


def poisson(rng: random.Random, mean: float) -> int:
    """A number of events (Knuth's method; small means)."""
    limit, events, product = math.exp(-mean), 0, rng.random()
    while product > limit:
        events += 1
        product *= rng.random()
    return events


def rates(seed: int, times: int) -> Iterator[str]:
    """Fleets over 30 and 90 days: who is excluded."""
    for nodes, days in ((48, 30.0), (256, 30.0), (48, 90.0), (1024, 90.0)):
        for factor in (1.0, 20.0, 50.0):
            rng = random.Random(f"rates {seed} {nodes} {days} {factor}")
            fleets, found, wrong = max(20, 20_000 * times // nodes), 0, 0
            for _ in range(fleets):
                fleet = [NodeDays(str(n), poisson(rng, 0.01 * days * (factor if n == 0 else 1)), days)
                         for n in range(nodes)]
                bad = [rate.node for rate in judge_rates(fleet) if rate.is_bad]
                found += "0" in bad
                wrong += len(bad) - ("0" in bad)
            told = f"{found / fleets:7.1%} found" if factor > 1 else "   healthy"
            innocent = fleets * (nodes - (factor > 1))
            yield (f"{nodes:5} nodes, {days:3.0f} days, 0.01 failures a day, one node × {factor:2.0f}: {told}, "
                   f"{wrong} of {innocent} others excluded ({wrong / innocent:.4%})")


def young(seed: int, times: int) -> Iterator[str]:
    """Healthy fleets by the ledger's lines: few days of use, one attempt after another, all nodes alike."""
    for nodes in (2, 4, 16, 48, 256):
        for days in (0.02, 0.5, 3.0, 30.0):
            rng = random.Random(f"young {seed} {nodes} {days}")
            fleets, wrong, names = max(20, 4_000 * times // nodes), 0, tuple(f"n{number}" for number in range(nodes))
            for _ in range(fleets):
                rate, share = rng.choice((0.003, 0.03, 0.3, 3.0)), days / 40
                uses = [NodeUse(names, (number + 1) * share * DAY_S, share * DAY_S, "run", number)
                        for number in range(40)]
                failures = [NodeEvidence(name, "network", use.t, "", "", "run", use.attempt, f"{name} {use.attempt}")
                            for use in uses for name in names if poisson(rng, rate * share)]
                wrong += sum(one.is_bad for one in judge_uses(failures, uses, "", days * DAY_S))
            yield (f"{nodes:5} nodes, {days:5.2f} days, 0.003 to 3 failures a day: {wrong} of {fleets * nodes} accused "
                   f"({wrong / fleets / nodes:.4%})")


def step_times(
    rng: random.Random, steps: int, noise: float, rho: float = 0.0, drop: float = 0.0, at: int = 0
) -> Iterator[StepTime]:
    """A run of 105.2 s a step, from `at` on longer by `drop`: autocorrelated noise, pauses, and outliers.

    A checkpoint or an evaluation takes 10 to 60 % of a step, each 100 steps; 1 % of the steps take up to four times as
    long.
    """
    apart = rng.gauss(0, noise)
    for step in range(steps):
        seconds = 105.2 * math.exp(apart) * (1 + (drop if step >= at else 0.0))
        if step % 100 == 99:
            seconds *= 1 + rng.uniform(0.1, 0.6)
        if rng.random() < 0.01:
            seconds *= rng.uniform(1, 4)
        yield StepTime(step, seconds)
        apart = rho * apart + rng.gauss(0, noise * math.sqrt(1 - rho * rho))


def follow_all(paces: Iterator[StepTime], tolerance: float = 0.05) -> list[PaceChange]:
    """What a run's watch reports."""
    watch, told = PaceWatch(tolerance), []
    for pace in paces:
        watch, change = follow(watch, pace)
        told += [change] if change else []
    return told


def drops(seed: int, times: int) -> Iterator[str]:
    """Runs with noise: false reports of healthy ones, and how many steps after it a drop is reported."""
    steps, runs, at = 20_000 * times, 50 * times, 550
    for noise, rho in ((0.002, 0.0), (0.005, 0.0), (0.005, 0.9), (0.01, 0.0), (0.01, 0.9), (0.02, 0.0), (0.02, 0.9)):
        rng = random.Random(f"drops {seed} {noise} {rho}")
        false = len(follow_all(step_times(rng, steps, noise, rho)))
        late = []
        for _ in range(runs):
            told = follow_all(step_times(rng, at + 450, noise, rho, 0.055, at))
            late += [change.seen_step - at + 1 for change in told if change.seen_step >= at][:1]
        within = sum(steps_late <= 20 for steps_late in late)
        typical = f"{median(late):.0f}" if late else "none"
        yield (f"noise {noise:.1%}, autocorrelation {rho}: {false} false reports in {steps} healthy steps; "
               f"5.5 % longer from a step on: {len(late)} of {runs} told within 450 steps, {within} within 20, "
               f"median {typical}")


def accused(rng: random.Random, nodes: int, slow_by: float, noise: float, spread: float) -> list[str]:
    """Who is called slow by one bench of a fleet; node 0 is slower by `slow_by`.

    `noise` varies from one measurement to the next, `spread` from node to node and stays.
    """
    made = [rng.gauss(0, spread) + (math.log(1 - slow_by) if number == 0 else 0.0) for number in range(nodes)]
    rounds = [{str(number): math.exp(made[number] + rng.gauss(0, noise)) for number in range(nodes)}]
    while again := measured_again(rounds, TOLERANCE):
        rounds.append({node: math.exp(made[int(node)] + rng.gauss(0, noise)) for node in again})
    return [score.node for score in judge_fleet(rounds) if score.is_slow]


def fleet(seed: int, times: int) -> Iterator[str]:
    """Benches of fleets: the slow node found in one, and healthy nodes accused."""
    for noise, spread in ((0.005, 0.0), (0.005, 0.005), (0.02, 0.0)):
        for nodes in (4, 6, 8, 16, 48, 256, 1024):
            rng = random.Random(f"fleet {seed} {nodes} {noise} {spread}")
            benches = times * max(1000, 100_000 // nodes)
            found = wrong = healthy = 0
            for _ in range(benches):
                told = accused(rng, nodes, 0.025, noise, spread)
                found += "0" in told
                wrong += len(told) - ("0" in told)
                healthy += len(accused(rng, nodes, 0.0, noise, spread))
            innocent = benches * (nodes - 1)
            yield (f"{nodes:5} nodes, noise {noise:.1%}, spread {spread:.1%}: 2.5 % slower found in {found} of "
                   f"{benches} ({found / benches:.2%}); others accused {wrong} of {innocent} ({wrong / innocent:.4%}), "
                   f"in healthy fleets {healthy} of {benches * nodes} ({healthy / benches / nodes:.4%})")


SECTIONS: dict[str, Callable[[int, int], Iterator[str]]] = {
    "rates": rates,
    "young": young,
    "drops": drops,
    "fleet": fleet,
}


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slow", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(SECTIONS)} (default: all)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--times", type=int, default=1, help="how many times as long")
    options = parser.parse_args()
    if unknown := set(options.names) - set(SECTIONS):
        parser.error(f"no figures {', '.join(sorted(unknown))}")
    for name in options.names or SECTIONS:
        start_s = time.monotonic()
        print(f"\n### {name}: python -m benchmarks.slow {name} --seed {options.seed} --times {options.times}")
        for line in SECTIONS[name](options.seed, options.times):
            print(f"  {line}", flush=True)
        print(f"{name}: {time.monotonic() - start_s:.0f} s", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
