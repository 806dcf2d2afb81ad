"""hyperscan as the search for literals, where it is installed (`pip install safelaunch[fast]`).

It matters for logs no two lines of which are alike: 400-1800 MB/s there, 10-30 without it (benchmarks/why_speed.py).
The lines of ordinary logs are alike, and are told from each other before any literal is searched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Search = Callable[[bytes], list[int]]


def make_search(literals: Sequence[bytes]) -> Search | None:
    """A search that gives the indices of the literals in a text; None = no hyperscan, or not for this processor."""
    try:
        import hyperscan
    except ImportError:
        return None
    try:
        database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        database.compile(expressions=list(literals), ids=list(range(len(literals))), literal=True,
                         flags=[hyperscan.HS_FLAG_SINGLEMATCH] * len(literals))
    except hyperscan.HyperscanError:   # a CPU without SSSE3
        return None

    def search(text: bytes) -> list[int]:
        found: list[int] = []
        database.scan(text, match_event_handler=lambda index, *_: found.append(index))
        return found

    return search
