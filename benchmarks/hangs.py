"""python -m benchmarks.hangs [--hours 10000] [--seed 1] [--replay FOLDER]: hangs and false alarms, in virtual time.

Made-up trainings (steptraces) print into a log that the real trainlog and hangs read as a leader does. Where
they are silent for too long, what the ranks do (hangscenes) is judged by the real verdict and proof of hangs.
At random moments of each phase a copy of the training stops for ever. In the same run: a timeout of 600 s on each
collective (NCCL), five times the longest interval (nvidia-resiliency-ext) and ten times the median step.
"""

from __future__ import annotations

import argparse
import copy
import math
import multiprocessing
import os
import random
import statistics
import sys
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.figure import percentile
from benchmarks.hangreplay import replay_folder
from benchmarks.hangscenes import HANGS, NAMING, Camera
from benchmarks.steptraces import KINDS, STALL, STEP, Buffer, Job, Piece, draw_job, play
from safelaunch.hangs import hang
from safelaunch.hangs.proof import (
    ALL_LOOKS_S,
    BETWEEN_LOOKS_S,
    Examination,
    conclude,
    is_certain,
    last_look_s,
    pause_before_last_s,
)
from safelaunch.trainlog.lines import listen

POLL_S, TICK_S = 5.0, 1.0                  # supervisor.observe: the log is read each 5 s; what is overdue, each second
SAMPLES, LOOKS_S = (3, 8), (3.0, 5.0)      # supervisor.hang.hangchecks: of the first two looks; what they take
START_S = 5.0                              # ... and what the third takes beside its samples, one a second
FIRST_STEP_S = 3600.0
SLICE_H = 250.0
HANGS_A_JOB = 40
NOTICE_TARGET_S = 60.0
MOST_S = 6 * 3600.0


@dataclass
class Hang:
    """One planted hang: seconds from its begin to the first look and to the verdict; what was promised."""

    phase: str
    kind: str
    noticed_s: float
    ended_s: float
    bound_s: float
    is_known: bool
    is_short: bool
    step_s: float
    peers_s: dict[str, float] = field(default_factory=dict)


@dataclass
class Tally:
    """What came of some job-hours."""

    hours: float = 0.0
    looks: Counter[str] = field(default_factory=Counter)
    alarms: list[str] = field(default_factory=list)
    peers: Counter[str] = field(default_factory=Counter)
    hangs: list[Hang] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """With another's."""
        self.hours += other.hours
        self.looks += other.looks
        self.peers += other.peers
        self.alarms += other.alarms
        self.hangs += other.hangs


class Watcher:
    """What the leader does with one training's log, in virtual time."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.rhythm = hang.begin(0.0, FIRST_STEP_S, None)
        self.deadline_s = hang.deadline_s(self.rhythm)
        self.held, self.held_s, self.poll_s = "", 0.0, 0.0
        self.camera: Camera | None = None
        self.looked: list[Examination] = []    # of the present check, and the one before it in this silence
        self.earlier: tuple[float, Examination] | None = None   # of this silence
        self.second_s, self.turn = math.inf, 0
        self.samples = SAMPLES[0]          # of the next look
        self.looks, self.ended_s, self.noticed_s = 0, math.inf, math.inf
        self.noticed_by = self.rhythm      # as it was then

    def begin(self, t: float, is_resized: bool) -> None:
        """A new attempt."""
        self.rhythm = hang.begin(t, FIRST_STEP_S, None, self.rhythm, is_resized=is_resized)
        self.held, self.looked, self.second_s = "", [], math.inf
        self.deadline_s = hang.deadline_s(self.rhythm)

    def print(self, t: float, text: str) -> None:
        """The log grows."""
        if not self.held:
            self.poll_s = math.ceil(t / POLL_S) * POLL_S
        self.held, self.held_s = self.held + text, t

    def pass_time(self, until_s: float, piece: Piece, kind_of_hang: str = "") -> None:
        """Nothing is printed before `until_s`."""
        while True:
            due_s = self.second_s if self.looked else math.ceil(self.deadline_s / TICK_S) * TICK_S + TICK_S
            if self.held and min(self.poll_s, due_s) <= until_s:
                self._read()
                continue
            if due_s > until_s or self.ended_s < math.inf:
                return
            self.camera = self.camera or Camera(self.job, piece, kind_of_hang)
            self.camera.piece = piece
            self._look(due_s)

    def _read(self) -> None:
        self.rhythm = hang.update(self.rhythm, math.ceil(self.held_s / TICK_S) * TICK_S, listen(self.held.encode()))
        self.held = ""
        self.deadline_s = hang.deadline_s(self.rhythm)
        if self.looked and self.second_s < self.deadline_s:   # a step has come between the two looks
            self.looked, self.second_s = [], math.inf

    def _look(self, t: float) -> None:
        assert self.camera is not None
        turn = self.turn if self.looked else 0
        before = [] if self.earlier is None or self.earlier[0] != self.rhythm.since_s else [self.earlier[1]]
        looks = [*(self.looked or before)]
        looks.append(self.camera.look(t, self.samples if turn else SAMPLES[0]))
        self.earlier = (self.rhythm.since_s, looks[-1])
        if not turn:
            self.looks += 1
            if self.noticed_s == math.inf:
                self.noticed_s, self.noticed_by = t, self.rhythm
        t += LOOKS_S[0] if not turn else 0.0
        self.rhythm, why_not = conclude(self.rhythm, t, looks, ALL_LOOKS_S if turn < 2 else 0.0)
        self.looked, self.second_s = [], math.inf
        if why_not:
            self.deadline_s = hang.deadline_s(self.rhythm)
        elif turn == 2 or (turn == 1 and is_certain(self.rhythm, looks)):
            self.ended_s = t
        else:
            last_s = last_look_s(looks)
            self.samples = round(last_s) if turn else SAMPLES[1]
            pause_s = pause_before_last_s(self.rhythm, t, looks) + last_s + START_S if turn else \
                BETWEEN_LOOKS_S + LOOKS_S[1]
            self.looked, self.turn, self.second_s = looks, turn + 1, t + pause_s


class Peers:
    """What others would call a hang, from the same lines."""

    def __init__(self) -> None:
        self.last_s, self.begun_s = 0.0, 0.0
        self.gaps: deque[float] = deque(maxlen=100)
        self.longest_s, self.is_first = 0.0, True
        self.heartbeat_s = 2700.0
        self.median_s = 0.0

    def begin(self, t: float) -> None:
        """A new attempt."""
        self.last_s, self.is_first = t, True

    def step(self, t: float) -> list[str]:
        """A step's line: who has raised an alarm before it came."""
        gap_s, alarms = t - self.last_s, []
        timeouts = self.timeouts()
        alarms = [name for name, limit_s in timeouts.items() if gap_s > limit_s and name != "collective"]
        if not self.is_first:
            self.gaps.append(gap_s)
            self.longest_s = max(self.longest_s, gap_s)
            if len(self.gaps) % 20 == 0 or not self.median_s:
                self.median_s = statistics.median(self.gaps)
        if t - self.begun_s > 7200 and self.heartbeat_s == 2700.0:
            self.heartbeat_s = 5 * self.longest_s
        self.last_s, self.is_first = t, False
        return alarms

    def timeouts(self) -> dict[str, float]:
        """Seconds from the last step's line after which each calls it a hang."""
        if self.is_first:
            return {"collective": 600.0, "heartbeat": 3600.0, "median": 3600.0}
        return {"collective": 600.0, "heartbeat": self.heartbeat_s,
                "median": max(10.0, 10 * self.median_s) if len(self.gaps) >= 20 else 3600.0}


def watch_job(seed: int, hours: float, hangs: int = HANGS_A_JOB) -> Tally:
    """One training, watched."""
    job, tally, draw = draw_job(seed), Tally(hours), random.Random(seed ^ 0xBAD)
    watcher, peers, buffer, t = Watcher(job), Peers(), Buffer(job.burst), 0.0
    want = _plan(job, hours, hangs)
    for word, piece in play(job, hours):
        if word != "piece":
            watcher.begin(t, word == "resized")
            peers.begin(t)
            buffer = Buffer(job.burst)
            continue
        _say(watcher, buffer, t, piece.first)
        if draw.random() < want.get(piece.kind, 0.0):
            tally.hangs.append(_plant(watcher, peers, t, piece, draw))
        before = watcher.looks
        watcher.pass_time(t + piece.length_s, piece)
        t += piece.length_s
        if watcher.looks > before:
            tally.looks[f"{piece.kind} {piece.who}" if piece.kind == STALL else piece.kind] += watcher.looks - before
        if watcher.ended_s < math.inf:
            tally.alarms.append(f"seed {seed} at {t:.0f} s: {piece}")
            watcher.ended_s = math.inf
            watcher.deadline_s = hang.deadline_s(hang.postpone_check(watcher.rhythm, t))
        if piece.length_s > 600 and (piece.who == "rank0" or piece.kind == STALL):
            tally.peers["collective"] += 1
        if piece.last:
            tally.peers.update(peers.step(t))
            _say(watcher, buffer, t, piece.last)
    return tally


def _say(watcher: Watcher, buffer: Buffer, t: float, text: str) -> None:
    out = buffer.put(t, text) if text else ""
    if out:
        watcher.print(t, out)


def _plan(job: Job, hours: float, hangs: int) -> dict[str, float]:
    """How likely a hang is planted in a piece of a kind: as many in each, as far as there are so many."""
    share = hangs / len(KINDS)
    often = {kind: hours * 3600 / every_s for kind, every_s in job.every_s.items() if every_s}
    often.update({"step": hours * 3600 / max(0.2, job.line_s), "start": 1.5, "warm-up": 7.0,
                  STALL: hours * job.stalls_an_hour})
    return {kind: min(1.0, share / max(count, 1.0)) for kind, count in often.items()}


def _plant(watcher: Watcher, peers: Peers, t: float, piece: Piece, draw: random.Random) -> Hang:
    """The same training, standing still from a moment of this piece on."""
    hung = copy.copy(watcher)
    hung.camera, hung.looked, hung.second_s = None, [], math.inf
    hung.deadline_s = hang.deadline_s(hung.rhythm)
    hung.noticed_s = math.inf
    kind, at_s = draw.choice(HANGS), t + piece.length_s * draw.random()
    hung.pass_time(at_s, piece)
    was_looked_at = hung.looks > watcher.looks or hung.rhythm.patience > 1 or hung.rhythm.is_guess
    hung.noticed_s, hung.camera, hung.looked, hung.second_s = math.inf, None, [], math.inf
    hung.noticed_by, hung.ended_s = hung.rhythm, math.inf
    hung.pass_time(at_s + MOST_S, Piece(piece.kind, piece.length_s, who="hung"), kind)
    rhythm = hung.noticed_by
    known = rhythm.learned.get(rhythm.phase, hang.Learned())
    before = rhythm.before.get(rhythm.phase, hang.Learned())
    longest_s = max(known.longest_s, before.longest_s * hang.slower(rhythm) if known.count < hang.SEEN else 0.0)
    places = [one.longest_s for one in rhythm.places if rhythm.phase == hang.STEP and rhythm.step is not None
              and (rhythm.step - one.anchor) % one.period == 0]
    bound_s = max(NOTICE_TARGET_S, hang.SHARE * max(longest_s, *places, 0.0))
    is_known = (rhythm.phase != hang.START and not was_looked_at and rhythm.patience == 1
                and (known.count >= hang.WARM_STEPS if rhythm.phase == hang.STEP
                     else known.count + before.count >= hang.SEEN))
    limits = peers.timeouts()
    waited_s = at_s - peers.last_s
    return Hang(piece.kind + ", looked at before" * was_looked_at, kind, hung.noticed_s - at_s, hung.ended_s - at_s,
                bound_s, is_known,
                rhythm.phase == hang.STEP and bound_s == NOTICE_TARGET_S and longest_s <= 15,
                watcher.job.step_s,
                {name: limit_s if name == "collective" else max(0.0, limit_s - waited_s)
                 for name, limit_s in limits.items()})


def main() -> int:
    """The exit code: 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=10_000.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--verbose", action="store_true", help="each false alarm, and each hang that was noticed late")
    parser.add_argument("--replay", type=Path, metavar="FOLDER", help="healthy logs with stamps: heard, and no more")
    args = parser.parse_args()
    if args.replay:
        heard = replay_folder(args.replay)
        print(f"{len(heard)} logs, {sum(one.hours for one in heard):.1f} h: {sum(one.looks for one in heard)} looks")
        return 0
    count = max(1, round(args.hours / 24))
    tally = Tally()
    with multiprocessing.Pool(args.jobs) as pool:
        for one in pool.imap_unordered(_one, [(args.seed * 1_000_003 + number, 24.0) for number in range(count)], 4):
            tally.add(one)
    print(render(tally, args.verbose))
    return int(bool(missed(tally)))


def _one(job: tuple[int, float]) -> Tally:
    return watch_job(*job)


def missed(tally: Tally) -> list[str]:
    """Targets that this tally does not meet."""
    found = []
    if len(tally.alarms) > max(1.0, tally.hours / 10_000):
        found.append(f"{len(tally.alarms)} false alarms in {tally.hours:.0f} job-hours")
    late = [one for one in tally.hangs if one.is_known and one.noticed_s > one.bound_s]
    if late:
        found.append(f"{len(late)} hangs were noticed later than promised")
    return found


def render(tally: Tally, is_verbose: bool = False) -> str:
    """The tables, as Markdown."""
    lines = ["", f"### hangs: {tally.hours:.0f} job-hours, {len(tally.hangs)} planted hangs", "",
             "| hung in | n | noticed p50 / p95 / max, s | within 60 s or 1.3 x the longest "
             "| ended p50 / p95 / max, s |",
             "|---|---|---|---|---|"]
    rows: dict[str, list[Hang]] = defaultdict(list)
    for one in tally.hangs:
        rows[one.phase if one.is_known or "," in one.phase else f"{one.phase}, not known yet"].append(one)
        if one.is_known:
            rows["all known"].append(one)
            if one.is_short:
                rows["all known, in steps of at most 15 s"].append(one)
                rows[f"all known, in steps of at most 15 s: {one.kind}"].append(one)
                if one.step_s < 1 and one.kind in NAMING and one.phase == STEP:
                    rows["all known, in plain steps below 1 s, one rank named"].append(one)
    for name in sorted(rows, key=lambda row: (row.startswith("all"), "," in row, row)):
        found = rows[name]
        kept = sum(one.noticed_s <= one.bound_s for one in found) if found[0].is_known else None
        lines.append(f"| {name} | {len(found)} | {_spread([one.noticed_s for one in found])} "
                     f"| {f'{kept} of {len(found)}' if kept is not None else ''} "
                     f"| {_spread([one.ended_s for one in found])} |")
    rate = 10_000 / tally.hours
    known = [one for one in tally.hangs if one.is_known]
    lines += ["", "| rule | false alarms per 10,000 job-hours | hangs noticed p50 / p95 / max, s |", "|---|---|---|",
              f"| safelaunch: ended | {len(tally.alarms) * rate:.3g} | {_spread([one.ended_s for one in known])} |",
              f"| safelaunch: looked at | {sum(tally.looks.values()) * rate:.4g} "
              f"| {_spread([one.noticed_s for one in known])} |"]
    for name, label in (("collective", "600 s for each collective (NCCL)"),
                        ("heartbeat", "5 x the longest interval (nvidia-resiliency-ext)"),
                        ("median", "10 x the median step")):
        lines.append(f"| {label} | {tally.peers[name] * rate:.4g} | {_spread([one.peers_s[name] for one in known])} |")
    lines += ["", "looks at healthy trainings: "
              + ", ".join(f"{kind} {count}" for kind, count in tally.looks.most_common())]
    lines += [f"MISSED: {what}" for what in missed(tally)]
    if is_verbose:
        lines += [f"false alarm: {one}" for one in tally.alarms]
        lines += [f"late: {one}" for one in tally.hangs if one.is_known and one.noticed_s > one.bound_s][:40]
        lines += [f"never ended: {one}" for one in tally.hangs if one.ended_s == math.inf][:20]
    return "\n".join([*lines, ""])


def _spread(values: list[float]) -> str:
    if not values:
        return ""
    return " / ".join(f"{value:.0f}" for value in (statistics.median(values), percentile(values, 0.95), max(values)))


if __name__ == "__main__":
    sys.exit(main())
