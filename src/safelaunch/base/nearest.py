"""The known word that a mistyped one was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable


def nearest_word(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The most similar known word, or None if none is near."""
    import difflib  # only a mistake pays for it

    found = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=cutoff)
    return found[0] if found else None
