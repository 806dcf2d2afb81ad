"""`python -m tests.conformance --scripts all --generated 2000 --seed 1`: each script under sbatch and under safelaunch.

Takes root, as the sandbox does. Exit code 1 where a difference was found that nobody has been told of.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import time
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any

from tests.conformance.case import Case, read_all
from tests.conformance.grammar import script_of, shrink
from tests.conformance.page import write_page
from tests.conformance.place import a_place
from tests.conformance.runner import AT_ONCE, VERDICTS, Result, run_all
from tests.runs import Installation, installed

TOGETHER = 250      # scripts of one sandbox: job ids are handed out in lots of 2,000
SHOWN_S = 30.0


def main(argv: list[str]) -> int:
    """1 when a script differs without a word, or ends wrong under its fault."""
    args = _parse(argv)
    if args.show:
        print("".join(f"# {one.name}: options {one.options}, variables {one.env}, arguments {one.args}\n{one.text}"
                      for one in _chosen(args)))
        return 0
    if args.page:
        rows = [json.loads(line) for line in Path(args.page).read_text().splitlines()]
        done = {row["name"] for row in rows}
        write_page([*rows, *(_row(Result(case, "")) for case in read_all() if case.name not in done)])
        return 0
    tally = _Tally(args.resume, args.verbose)
    cases = [case for case in _chosen(args) if case.name not in tally.known]
    with installed() as installation:
        if args.shrink is not None:
            return _shrink(args.shrink, installation)
        for part in range(0, len(cases), TOGETHER):
            for result in _run(installation, cases[part:part + TOGETHER], args):
                tally.take(result)
    return tally.close()


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--scripts", default="", help="all, short, or patterns of names: srun-*,itself-*")
    parser.add_argument("--generated", type=int, default=0, help="how many scripts of the grammar")
    parser.add_argument("--seed", type=int, default=1, help="the first one's seed")
    parser.add_argument("--resume", help="a file of results; scripts that stand in it are not run again")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="sides that run at the same time")
    parser.add_argument("--keep", action="store_true", help="wait at the end, with the folders of what differs")
    parser.add_argument("--show", action="store_true", help="print the scripts, and run nothing")
    parser.add_argument("--shrink", type=int, metavar="SEED", help="the smallest script of that seed that differs")
    parser.add_argument("--page", metavar="RESULTS", help="write the tables of docs/conformance.md from such a file")
    parser.add_argument("-v", "--verbose", action="store_true", help="print those that are equal, too")
    return parser.parse_args(argv)


def _chosen(args: argparse.Namespace) -> Iterator[Case]:
    patterns = args.scripts.split(",")
    for case in read_all() if args.scripts else ():
        if patterns == ["all"] or (patterns == ["short"] and case.is_short) or any(
                fnmatch(case.name, pattern) for pattern in patterns):
            yield case
    for seed in range(args.seed, args.seed + args.generated):
        yield script_of(seed)


def _run(installation: Installation, cases: Iterable[Case], args: argparse.Namespace) -> Iterator[Result]:
    with a_place(installation) as place:
        yield from run_all(place, cases, args.at_once, args.keep)
        if args.keep:
            input(f"folders: {place.base}; SLURM_CONF={place.sandbox.conf}; Enter ends it\n")


def _shrink(seed: int, installation: Installation) -> int:
    with a_place(installation) as place:
        def differs(case: Case) -> list[str]:
            (result,) = run_all(place, [case])
            return [str(one) for one in result.differences] if result.is_bad else []

        case, differences = shrink(seed, differs)
    print(f"# options {case.options}, variables {case.env}, arguments {case.args}\n{case.text}")
    print("\n".join(differences) or "no difference")
    return 1 if differences else 0


class _Tally:
    """What has been run, and how it went; kept in a file where one is named."""

    def __init__(self, resume: str | None, is_verbose: bool) -> None:
        self.is_verbose = is_verbose
        self.rows: list[dict[str, Any]] = []
        self.log: IO[str] | None = None
        self.begun_s = self.shown_s = time.monotonic()
        if resume is not None:
            file = Path(resume)
            lines = file.read_text().splitlines() if file.exists() else []
            self.rows = [json.loads(line) for line in lines if line.endswith("}")]
            self.log = file.open("a")
        self.known = {row["name"] for row in self.rows}

    def take(self, result: Result) -> None:
        """One more."""
        case = result.case
        row = _row(result)
        self.rows.append(row)
        if self.log is not None:
            print(json.dumps(row), file=self.log, flush=True)
        if result.is_bad or self.is_verbose:
            print(f"{case.name}: {result.verdict} after {result.took_s:.0f} s", *result.differences, *result.wrongs,
                  sep="\n    ", flush=True)
            if result.is_bad:
                print(f"    replay: python -m tests.conformance {_replay(case)}", flush=True)
        if time.monotonic() - self.shown_s > SHOWN_S:
            self.shown_s = time.monotonic()
            print(f"... {len(self.rows):,} scripts, {self._bad()} bad, {self.shown_s - self.begun_s:.0f} s", flush=True)

    def _bad(self) -> int:
        return sum(row["verdict"] in ("unsaid", "wrong") for row in self.rows)

    def close(self) -> int:
        """The exit code, after the tables."""
        groups: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        kinds: collections.Counter[str] = collections.Counter()
        for row in self.rows:
            groups[row["group"]][row["verdict"]] += 1
            if row["verdict"] == "unsaid":
                kinds.update({f"{kind} {name}" for kind, name, *_ in row["differences"]})
        print(f"\n{'group':<12}" + "".join(f"{verdict:>8}" for verdict in VERDICTS))
        for group, counts in sorted(groups.items()):
            print(f"{group:<12}" + "".join(f"{counts[verdict]:>8}" for verdict in VERDICTS))
        print("\n".join(["", *(f"{count:>6} {kind}" for kind, count in kinds.most_common(40))]))
        print(f"{len(self.rows):,} scripts, {self._bad()} bad, {time.monotonic() - self.begun_s:.0f} s", flush=True)
        return 1 if self._bad() else 0


def _row(result: Result) -> dict[str, Any]:
    case = result.case
    return {"name": case.name, "group": case.group, "shape": case.shape, "verdict": result.verdict,
            "differences": [tuple(one) for one in result.differences], "wrongs": result.wrongs,
            "took_s": round(result.took_s, 1)}


def _replay(case: Case) -> str:
    if case.group != "generated":
        return f"--scripts {case.name}"
    return f"--generated 1 --seed {case.name.rpartition('-')[2]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
