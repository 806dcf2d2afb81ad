"""Values that would like to be code: for bash, for sbatch, for the template, for the terminal."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

LONG = os.environ.get("SAFELAUNCH_LONG") == "1"
VALUES = 10_000 if LONG else 500
CANARY = "canary"   # no test's folder may hold a file of this name afterwards

BAITS = (
    "'", '"', "\\", "\\\\", "`", "$", "#", "%", "%j", "%%", "!", "!!", "~", "*", "?", "[a-z]", "{a,b}", "=", ":", ",",
    " ", "  ", "\t", "\n", "\r", "\r\n", "\x1b[2J", "\x7f", "\x01", "-", "--", "-n 9", "--help", "é", "😀", "\xa0",
    "\u2028", "\u202e", "\ufeff", "$(touch canary)", "`touch canary`", "; touch canary;", "\ntouch canary\n",
    "'; touch canary; '", '"; touch canary; "', "'$(touch canary)'", "&& touch canary ||", ">canary", "<(touch canary)",
    "${x:-$(touch canary)}", "$((x[$(touch canary)]))", "a[$(touch canary)]", "$'\\n'", "$IFS", "${HOME}", "\\\n",
    "# <<< values\ntouch canary\n", "# >>> directives\n", "END_OF_NODE\n", "\nEND_OF_NODE\ntouch canary\n", ")", "(",
    "\n#SBATCH --comment=bait\n", "\n#PBS -N bait\n", "\n#BSUB -J bait\n", "#SBATCH --uid=0", "\n #SBATCH -Jbait",
    "<<EOF\n", "|touch canary", "touch canary", "() { :; }; touch canary",
)  # fmt: skip

_characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
_pieces = st.lists(st.sampled_from(BAITS) | st.text(_characters, max_size=8), max_size=8).map("".join)
_long = st.builds(
    lambda piece, size: (piece or "x") * (size // (len(piece.encode()) + 1)), _pieces, st.integers(1, 9_000))
values = st.one_of(_pieces, _pieces, _pieces, _pieces, _pieces, _pieces, _pieces, _long)


def batches(size: int) -> st.SearchStrategy[list[str]]:
    """Lists of `size` hostile values: one process for many of them."""
    return st.lists(values, min_size=size, max_size=size)


def many(batch: int) -> settings:
    """As many examples as make VALUES values: 500, or 10,000 with SAFELAUNCH_LONG=1."""
    return settings(max_examples=-(-VALUES // batch), deadline=None, derandomize=not LONG,
                    suppress_health_check=list(HealthCheck))


def printable(value: str) -> str:
    """`value` without the characters that a line of a config cannot hold."""
    return "".join(char for char in value if ord(char) >= 32 and ord(char) != 127)
