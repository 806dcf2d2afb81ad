"""What `safelaunch why` says of failed logs that end amid their first traceback, as a full disk or a kill leaves them.

    python -m benchmarks.whycuts [--corpus DIR]…

No labels are needed for the figure that counts: how many of them are called "nothing is wrong". The corpora are those
of benchmarks/why.py.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.why import CONFIDENT, Answer, Case, ask_safelaunch, find_corpora, load_corpus

BEHIND = (0, 1, 2, 4, 8, 20, 60)   # lines behind the first one of the traceback
# The first traceback that somebody minds: the interpreter prints others at its exit.
_BEGIN = re.compile(rb"^(?!.*(?:Exception ignored in|Error in atexit|Logging error)).*(?:\n|\A)"
                    rb"(?P<line>.*Traceback \(most recent call last\).*\n)", re.MULTILINE)


def cut(case: Case, lines: int, folder: Path) -> Case | None:
    """The case with its log cut so many lines behind the first line of a traceback; None = it is not so long."""
    data = case.path.read_bytes()
    begun = _BEGIN.search(data)
    if begun is None:
        return None
    rest = data[begun.end():].splitlines(keepends=True)
    if len(rest) <= lines:
        return None
    path = folder / f"{case.id}-{lines}.log"
    path.write_bytes(data[:begun.end()] + b"".join(rest[:lines]))
    return replace(case, id=path.stem, path=path)


def name(case: Case, answer: Answer) -> str:
    """What the answer is worth."""
    category = next(iter(answer.categories))
    if category in ("none", "unknown"):
        return category
    sure = " and sure" if (answer.confidence or 0.0) >= CONFIDENT else ""
    return "right" if category in case.categories else f"wrong{sure}"


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.whycuts", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--corpus", type=Path, action="append", default=[], help="a folder with labels.jsonl and cases")
    options = parser.parse_args(argv)
    failed = [case for folder in find_corpora(options.corpus) for case in load_corpus(folder)
              if case.category != "none"]
    print("| lines behind | logs | none | unknown | right | wrong | wrong and sure |\n|---|---|---|---|---|---|---|")
    for lines in BEHIND:
        with tempfile.TemporaryDirectory() as folder:
            cases = [short for case in failed if (short := cut(case, lines, Path(folder))) is not None]
            said = Counter(name(case, answer) for case, answer in zip(cases, ask_safelaunch(cases), strict=True))
        figures = (said[word] for word in ("none", "unknown", "right", "wrong", "wrong and sure"))
        print(f"| {lines} | {len(cases)} | {' | '.join(map(str, figures))} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
