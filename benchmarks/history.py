"""python -m benchmarks.history [--docs] → the last row of `make bench-quick`, and warnings where a ratio has grown.

Each row of history.jsonl is one run: the commit that was measured, the machine, and how many times as long (or as much)
safelaunch takes as a peer in the same run. Without --docs nothing is written; the exit code is 0 whatever it says: a
ratio of one run is no proof. --docs puts the last row into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
HISTORY = Path(__file__).with_name("history.jsonl")
DOCS = ROOT / "docs" / "benchmarks.md"
BEGIN = "<!-- last row of benchmarks/history.jsonl: begin -->"
END = "<!-- last row of benchmarks/history.jsonl: end -->"
# What is measured, and what beside it: each ratio is safelaunch's value by the peer's. Less is better.
FIGURES = {
    "restart": ("last rank dead → first line of the next attempt, 4 nodes", "a bash loop around srun"),
    "submit": ("one submission, a whole process", "submitit"),
    "leader": ("processor time of the leader, 32 ranks that write 0.5 MB/s", "srun, which carries the same log"),
    "why": ("processor time to the verdict on a log of 300 MB", "grep -F with the rules' literals"),
    "stacks": ("stacks of 32 ranks on 4 nodes, a whole process", "srun and py-spy on each rank"),
}
WORSE = 1.2          # times the ratio of the row before
MOST_COMMITS = 40    # to the product since the last row
PRODUCT = ("src", "templates")
GIT = ("git", "-c", "safe.directory=*", "-C", str(ROOT))   # also as root in a user's clone


@dataclass(frozen=True)
class Measured:
    """One figure: medians of ours and of the peer's in `unit`, their ratio, and of how many values."""

    ratio: float
    ours: float
    peer: float
    unit: str
    n: int


@dataclass(frozen=True)
class Row:
    """One run of `make bench-quick`; `when` is ISO 8601, `load` the load averages when it began and when it ended."""

    commit: str
    is_dirty: bool
    when: str
    cores: int
    load: tuple[float, float]
    slurm: str
    python: str
    kernel: str
    took_s: float
    figures: Mapping[str, Measured]

    @property
    def machine(self) -> tuple[object, ...]:
        """Rows of other machines are not compared: what is slow on one core is not what is slow on sixty-four."""
        return (self.cores, self.slurm.rpartition(".")[0], self.python.rpartition(".")[0])

    @property
    def name(self) -> str:
        """The commit, as people read it."""
        return self.commit + ("+changes" if self.is_dirty else "")


def render_row(row: Row) -> str:
    """A line of the history."""
    figures = {name: {"ratio": round(one.ratio, 3), "ours": _three(one.ours), "peer": _three(one.peer),
                      "unit": one.unit, "n": one.n} for name, one in row.figures.items()}
    return json.dumps({"v": 1, "commit": row.commit, "dirty": row.is_dirty, "when": row.when, "cores": row.cores,
                       "load": [round(value, 1) for value in row.load], "slurm": row.slurm, "python": row.python,
                       "kernel": row.kernel, "took_s": round(row.took_s), "figures": figures}) + "\n"


def parse_rows(text: str) -> tuple[Row, ...]:
    """The history's rows, oldest first; ValueError with the line's number where one is torn or lacks something."""
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            rows.append(_parse_row(json.loads(line)))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"{HISTORY.name}:{number}: no row of bench-quick ({error!r})") from error
    return tuple(rows)


def _parse_row(said: dict[str, Any]) -> Row:
    figures = {name: Measured(float(one["ratio"]), float(one["ours"]), float(one["peer"]), str(one["unit"]),
                              int(one["n"])) for name, one in said["figures"].items()}
    before, after = said["load"]
    return Row(str(said["commit"]), bool(said["dirty"]), str(said["when"]), int(said["cores"]),
               (float(before), float(after)), str(said["slurm"]), str(said["python"]), str(said["kernel"]),
               float(said["took_s"]), figures)


def find_worse(rows: Sequence[Row]) -> list[str]:
    """A sentence for each ratio of the last row that is over 20 % above that of the row before on such a machine."""
    if not rows:
        return []
    last = rows[-1]
    said = []
    for name, now in last.figures.items():
        row = next((row for row in reversed(rows[:-1]) if row.machine == last.machine and name in row.figures), None)
        if row is None:
            continue
        before = row.figures[name].ratio
        if now.ratio > before * WORSE:
            peer = FIGURES[name][1] if name in FIGURES else "its peer"
            said.append(f"{name}: {now.ratio:.2f} × {peer} at {last.name} (load {last.load[0]:.1f}), {before:.2f} × at "
                        f"{row.name} (load {row.load[0]:.1f}): {now.ratio / before - 1:.0%} more")
    return said


def find_old(rows: Sequence[Row], commits_since: int | None) -> list[str]:
    """A sentence where the product has gone on without a row; `commits_since` None: nobody knows the row's commit."""
    if not rows:
        return [f"{HISTORY.name} is empty: make bench-quick"]
    if commits_since is None:
        return [f"the last row measured {rows[-1].name}, which is no commit of this history: make bench-quick"]
    if commits_since > MOST_COMMITS:
        return [f"{commits_since} commits have changed the product since the last row, of {rows[-1].name}: "
                f"make bench-quick"]
    return []


def render_block(row: Row) -> str:
    """The last row as Markdown."""
    lines = ["| figure | safelaunch | peer | ratio | n |", "|---|---|---|---|---|"]
    for name, one in row.figures.items():
        what, peer = FIGURES[name]
        lines.append(f"| {name}: {what} | {_three(one.ours):g} {one.unit} | {peer}: {_three(one.peer):g} {one.unit} | "
                     f"**{one.ratio:.2f}** | {one.n} |")
    return "\n".join([
        BEGIN, "", f"Commit {row.name}, {row.when}: {row.cores} cores, load {row.load[0]:.1f} at the beginning and "
        f"{row.load[1]:.1f} at the end, Slurm {row.slurm}, Python {row.python}, Linux {row.kernel}; {row.took_s:.0f} s "
        "in all.", "", *lines, "", END])


def replace_block(text: str, block: str) -> str:
    """The document with this block between its marks; ValueError where it has none."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{DOCS}: no block between {BEGIN!r} and {END!r}")
    return head + block + tail


def count_commits_since(commit: str) -> int | None:
    """How many commits have changed the product since then; None where git does not know that commit."""
    argv = [*GIT, "rev-list", "--count", f"{commit}..HEAD", "--", *PRODUCT]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return int(done.stdout) if done.returncode == 0 else None


def read_rows() -> tuple[Row, ...]:
    """The rows of the repository's history."""
    return parse_rows(HISTORY.read_text()) if HISTORY.exists() else ()


def update_docs(rows: Sequence[Row]) -> None:
    """Put the last row into the document."""
    DOCS.write_text(replace_block(DOCS.read_text(), render_block(rows[-1])))


def main() -> int:
    """0, or 2 where the history cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--docs", action="store_true", help="put the last row into docs/benchmarks.md")
    options = parser.parse_args()
    try:
        rows = read_rows()
        if options.docs and rows:
            update_docs(rows)
    except (OSError, ValueError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    if rows:
        ratios = ", ".join(f"{name} {one.ratio:.2f}" for name, one in rows[-1].figures.items())
        print(f"bench-quick: last row of {rows[-1].name} ({rows[-1].when}): {ratios} × the peers")
    commits_since = count_commits_since(rows[-1].commit) if rows else None
    for warning in (*find_worse(rows), *find_old(rows, commits_since)):
        print(f"WARNING: bench-quick: {warning}")
    return 0


def _three(value: float) -> float:
    """Three digits."""
    return float(f"{value:.3g}")


if __name__ == "__main__":
    sys.exit(main())
