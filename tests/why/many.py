"""python -m tests.why.many [--count 5000] [--seed 0] → how many planted causes are found, over random logs.

Each log has a seed of its own: plant, shape and noise follow from it, and `--seed N --count 1` makes it again. Every
BIG_EVERY-th is of 384 ranks with up to 100,000 echoes. The exit code is 1 when a wrong answer was 0.8 sure or more.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter

from safelaunch.why.verdict import Verdict
from tests.why.generator import Shape, Synthetic, make_log
from tests.why.plants import PLANTS, Plant
from tests.why.test_synthetic import CONFIDENT, describe, explain, is_right, text_of

BIG_EVERY = 50


def draw(seed: int) -> tuple[Plant, Shape]:
    """The plant and the shape of the log of this seed."""
    source = random.Random(seed)
    is_big = seed % BIG_EVERY == 0
    shape = Shape(
        hosts=48 if is_big else source.randint(2, 12), ranks_per_host=8 if is_big else source.choice((1, 4, 8)),
        steps=source.randint(0, 30),
        echoes=source.choice((10_000, 30_000, 100_000)) if is_big else source.randint(0, 800),
        skew_s=source.choice((0.0, 5.0, 90.0, 600.0)), delay_s=source.choice((0.0, 2.0, 20.0)),
        prefix=source.choice(("host:rank", "default", "srun -l", "none")),
        layout=source.choice(("one file", "a file per node")),
        cut_bytes=source.choice((0, 0, 0, source.randint(1, 20_000))), scare=source.random() < 0.5)
    return source.choice(PLANTS), shape


def judge(log: Synthetic, verdict: Verdict) -> str:
    """One word about the answer."""
    if log.line not in text_of(log):
        is_sure = verdict.category not in ("none", "unknown") and verdict.confidence >= CONFIDENT
        is_wrong = is_sure and not is_right(log, verdict)
        return "cut off, and WRONG with confidence" if is_wrong else "cut off, and said so"
    if is_right(log, verdict):
        if verdict.cause is None or log.line not in verdict.cause.text:
            return "right, by another line"
        return "right" if not log.ranks or verdict.rank in log.ranks else "right, of another rank"
    if verdict.category == "unknown":
        return "unknown"
    return "WRONG with confidence" if verdict.confidence >= CONFIDENT else "wrong, unsure"


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    tally: Counter[str] = Counter()
    start_s = time.monotonic()
    for seed in range(options.seed, options.seed + options.count):
        plant, shape = draw(seed)
        verdict = explain(log := make_log(plant, shape, seed))
        word = judge(log, verdict)
        tally[word] += 1
        if not word.startswith(("right", "cut off, and said")) or word == "right, of another rank":
            print(f"seed {seed}: {word}: {plant.name} ({plant.category}), {shape}\n  {describe(verdict)}", flush=True)
    print(f"{options.count} logs in {time.monotonic() - start_s:.0f} s")
    for word, count in tally.most_common():
        print(f"{count:6d} {count / options.count:7.2%}  {word}")
    return int(any("WRONG" in word for word in tally))


if __name__ == "__main__":
    raise SystemExit(main())
