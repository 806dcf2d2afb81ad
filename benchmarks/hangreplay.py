"""Real logs, heard as a leader would have heard them: how often somebody would have looked.

A line comes at the time of its own stamp, or with the line before it. Without stamps, and without what the ranks did,
that is all a log can tell: each look at a healthy one counts, and none is judged further.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

from safelaunch.hangs import hang
from safelaunch.trainlog.lines import listen
from safelaunch.why import logstamps

POLL_S = 5.0
MOST_S = 30 * 86400.0
_PREFIX = re.compile(rb"^(?:\[[\w.:-]+\]:?|\d+: )*\s*\[?")   # torchrun's, srun's


class Replayed(NamedTuple):
    """What came of one log."""

    name: str
    hours: float
    pieces: int
    looks: int


def replay_folder(folder: Path) -> list[Replayed]:
    """All healthy logs of a corpus (labels.jsonl, category none), or all *.log and *.txt of a folder."""
    labels = folder / "labels.jsonl"
    if labels.exists():
        rows = [json.loads(line) for line in labels.read_text().splitlines()]
        paths = [folder / "cases" / f"{row['id']}.log" for row in rows if row["category"] == "none"]
    else:
        paths = sorted(path for path in folder.iterdir() if path.suffix in (".log", ".txt"))
    return [found for path in paths if (found := replay(path.name, path.read_bytes())) is not None]


def replay(name: str, text: bytes) -> Replayed | None:
    """One log; None without stamps."""
    timed = _timed(text)
    if len(timed) < 2:
        return None
    start_s = timed[0][0]
    rhythm, looks, poll_s = hang.begin(start_s, 3600.0, None), 0, start_s
    held = b""
    for t, line in timed:
        while hang.deadline_s(rhythm) < t and not held:
            looks += 1
            rhythm = hang.postpone_check(rhythm, hang.deadline_s(rhythm))
        if held and t > poll_s:
            rhythm, held = hang.update(rhythm, poll_s, listen(held)), b""
        poll_s = max(poll_s, t) if held else t + POLL_S
        held += line
    if timed[-1][0] - start_s > MOST_S:
        return None   # two clocks in one log
    return Replayed(name, (timed[-1][0] - start_s) / 3600, rhythm.steps, looks)


def _timed(text: bytes) -> list[tuple[float, bytes]]:
    """Lines with their times, in order; those before the first stamp come with it."""
    found: list[tuple[float, bytes]] = []
    early: list[bytes] = []
    for line in text.splitlines(keepends=True):
        match = _PREFIX.match(line)
        stamp = logstamps.match(line[:200], match.end() if match else 0)
        if stamp is not None and stamp.t is not None:
            found.append((max(stamp.t, found[-1][0]) if found else stamp.t, b"".join(early) + line))
            early = []
        elif found:
            found.append((found[-1][0], line))
        else:
            early.append(line)
    return found
