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

from safelaunch.core.noderates import NodeDays, judge_rates


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


SECTIONS: dict[str, Callable[[int, int], Iterator[str]]] = {
    "rates": rates,
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
