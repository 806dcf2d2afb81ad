"""False takeovers, counted over any number of node-hours: `python -m tests.simulation.takeovers --hours 1e6`.

A reduced model around the judgement itself, decide.jobs.takeover: a leader that pings each second and shows its pulse
as observe.py and standbys.py of supervisor/ do, a standby that listens and reads as its standby.py does. Where nothing
is wrong each ping makes both forget what was before: only the minutes around pauses and stalls are run.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import time
from dataclasses import dataclass

from safelaunch.base.timing import CONTESTED_S, HEARTBEAT_S, PAUSE_S, READ_EVERY_S, SUSPICION_S
from safelaunch.decide.jobs import takeover
from safelaunch.decide.jobs.takeover import Signs

STALL_S = 30.0       # issue 3, Targets
PAUSES_AN_HOUR = 1.0
NEAR_S = 45.0                       # a second pause this near to the first can meet its consequences
READ_DEADLINE_S = 1.0
TICK_S = 0.25
CALM_S = 25.0                       # after the last fault; a standby has judged within 22 s


@dataclass(frozen=True)
class Episode:
    """What is wrong, as (from, to) in seconds: pauses of both sides, and when the folder stalls for each of them."""

    leader: tuple[tuple[float, float], ...] = ()
    standby: tuple[tuple[float, float], ...] = ()
    writes: tuple[tuple[float, float], ...] = ()
    reads: tuple[tuple[float, float], ...] = ()

    @property
    def end_t(self) -> float:
        """When all is well again."""
        spans = (*self.leader, *self.standby, *self.writes, *self.reads)
        return max((end for _, end in spans), default=0.0)


def _within(t: float, spans: tuple[tuple[float, float], ...]) -> bool:
    return any(start <= t < end for start, end in spans)


def is_false(episode: Episode, phase_s: float) -> bool:
    """Whether the standby takes a leader for dead that is alive all the time. `phase_s`: of the leader's calm pulse."""
    signs: Signs = takeover.receive(takeover.begin(0.0), 0.0, 1)
    count, shown, shown_every_s = 1, 1, HEARTBEAT_S
    pinged_t = heard_t = ticked_t = read_t = 0.0
    pulse_due_t, waiting = HEARTBEAT_S - phase_s, False
    answered_t = 0.0                    # when the leader last heard its standby
    t = 0.0
    while t < episode.end_t + CALM_S:
        stalled = _within(t, episode.writes)
        if not _within(t, episode.leader):
            is_contested = t - answered_t > SUSPICION_S
            if t - pinged_t >= 1.0:
                pinged_t = t
            if t >= pulse_due_t:
                count, waiting = count + 1, True
                pulse_due_t = t + (CONTESTED_S if is_contested else HEARTBEAT_S)
                pinged_t = t                      # a ping tells of it first
            if waiting and not stalled:           # the courier delivers, also after the thaw
                shown, shown_every_s, waiting = count, CONTESTED_S if is_contested else HEARTBEAT_S, False
        if not _within(t, episode.standby):
            if t - ticked_t > TICK_S + 3.0:
                signs = takeover.begin(t, signs.is_known)
            ticked_t = t
            if pinged_t > heard_t:
                heard_t = pinged_t
                signs = takeover.receive(signs, t, count)
            if not _within(t, episode.leader) and heard_t == pinged_t:
                answered_t = t
            if takeover.is_suspicious(signs, t) and t - read_t >= READ_EVERY_S:
                read_t = t
                if not _within(t, episode.reads) and not _within(t + READ_DEADLINE_S, episode.reads):
                    signs = takeover.read(signs, t, shown, shown_every_s)
            if takeover.is_dead(signs, t):
                return True
        t += TICK_S
    return False


def draw(rng: random.Random) -> Episode:
    """A pause of one side, with what can fall near it; rare meetings are drawn far more often than they happen."""
    sides: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    first, second = rng.random() < 0.5, rng.random() < 0.5
    sides[first].append((10.0, 10.0 + PAUSE_S))
    if rng.random() < 0.3:
        start = rng.uniform(0.0, NEAR_S)
        if first != second or abs(start - 10.0) > PAUSE_S + 2.0:   # two pauses on end would be a longer one
            sides[second].append((start, start + PAUSE_S))
    start = rng.uniform(-STALL_S, 30.0)
    stall = ((start, start + STALL_S),) if rng.random() < 0.5 else ()
    where = rng.choice(("both", "both", "leader", "standby"))
    return Episode(tuple(sides[0]), tuple(sides[1]), stall if where != "standby" else (),
                   stall if where != "leader" else ())


def count_false(seed: int, episodes: int) -> int:
    """False takeovers in so many episodes."""
    rng = random.Random(f"takeovers {seed}")
    return sum(is_false(draw(rng), rng.uniform(0.0, HEARTBEAT_S)) for _ in range(episodes))


def _work(words: tuple[int, int]) -> int:
    return count_false(*words)


def main(argv: list[str]) -> int:
    """0 when there was no false takeover."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.takeovers", description=__doc__)
    parser.add_argument("--hours", type=float, default=1e4, help="node-hours, each with its pause")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args(argv)
    episodes = int(args.hours * PAUSES_AN_HOUR)
    share = 1000
    begun_s = time.monotonic()
    with multiprocessing.get_context("fork").Pool(args.jobs) as pool:
        found = sum(pool.imap_unordered(_work, ((seed, share) for seed in range(max(1, episodes // share)))))
    print(f"{found} false takeovers in {args.hours:g} node-hours, each with a pause of {PAUSE_S:.0f} s, "
          f"every other one with a stall of {STALL_S:.0f} s of the folder; {time.monotonic() - begun_s:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
