"""The engine that searches for many literals at once: hyperscan where it is installed, else ahocorasick_rs.

It matters for logs no two lines of which are alike: the lines of ordinary logs are, and are told from each other before
any literal is searched. ahocorasick_rs comes with safelaunch on x86-64 and aarch64: it is imported in 2 ms, made in 20,
and reads 370 MB/s; hyperscan (`pip install safelaunch[fast]`) takes 16 and 25 ms and reads 2600; see
benchmarks/why_speed.py.
Without both core/why/literals.py searches by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from safelaunch.core.why.literals import Place, Search


def make_search(literals: Sequence[bytes]) -> Search | None:
    """A search that gives the places of the literals in a text; None = no engine, or none for this processor."""
    return make_hyperscan(literals) or make_aho_corasick(literals)


def make_hyperscan(literals: Sequence[bytes]) -> Search | None:
    """The search by hyperscan; None = not installed, or not for this processor."""
    try:
        import hyperscan
    except ImportError:
        return None
    lengths = [len(literal) for literal in literals]
    try:
        database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        database.compile(expressions=list(literals), ids=list(range(len(literals))), literal=True)
    except hyperscan.HyperscanError:   # a CPU without SSSE3
        return None

    def search(text: bytes) -> list[Place]:
        found: list[Place] = []
        database.scan(text, match_event_handler=lambda index, start, end, *_:
                      found.append((index, end - lengths[index], end)))
        return found

    return search


def make_aho_corasick(literals: Sequence[bytes]) -> Search | None:
    """The search by ahocorasick_rs; None = not installed."""
    try:
        import ahocorasick_rs
    except ImportError:
        return None
    automaton = ahocorasick_rs.BytesAhoCorasick(literals, implementation=ahocorasick_rs.Implementation.DFA)

    def search(text: bytes) -> list[Place]:
        found: list[Place] = automaton.find_matches_as_indexes(text, overlapping=True)
        return found

    return search
