"""What a script has asked to go on with when its attempt ends: the next links of its chain, a file beside its output.

Standard library, Python 3.9.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Optional

ANY, OK, NOT_OK = "any", "ok", "notok"   # after which end of this job a link starts
FIRST_ID = 9_000_000_000   # above every id that Slurm has: it refuses them


def path_of(folder: str, attempt: int) -> str:
    """The file of an attempt's links."""
    return "%s/attempt-%04d.links" % (folder, attempt)


def read(path: str) -> list[dict[str, Any]]:
    """The links, in the order in which they were asked for; [] where there are none."""
    try:
        with open(path) as file:
            links = read_json(file.read())
    except (OSError, ValueError):
        return []
    return [link for link in links if isinstance(link, dict)] if isinstance(links, list) else []


def write(path: str, links: Sequence[Mapping[str, Any]]) -> None:
    """Keep these links; raises OSError."""
    import json  # few scripts go on with another job

    draft = "%s.%d" % (path, os.getpid())
    with open(draft, "w") as file:
        json.dump(list(links), file)
    os.replace(draft, path)


def new_id(attempt: int, links: Sequence[Mapping[str, Any]]) -> str:
    """An id for one more link."""
    taken = [int(link["id"]) for link in links]
    return str(max([FIRST_ID + attempt * 100, *taken]) + 1)


def add(links: list[dict[str, Any]], link: dict[str, Any]) -> Optional[dict[str, Any]]:
    """The link as it is kept: the same one where it was asked for before; None: another one starts after the same end,
    and a run goes on as one job only.
    """
    for known in links:
        if {**known, "id": ""} == {**link, "id": ""}:
            return known
        if ANY in (known["when"], link["when"]) or known["when"] == link["when"]:
            return None
    links.append(link)
    return link


def read_json(text: str) -> Any:
    """As json.loads, of a text that begins with its value; json takes 5 to 10 ms to import. Raises ValueError."""
    try:
        from _json import make_scanner
    except ImportError:   # another Python
        import json

        return json.loads(text)
    try:
        return make_scanner(_AsJson)(text, 0)[0]   # type: ignore[arg-type]
    except StopIteration as error:
        raise ValueError("no JSON") from error


class _AsJson:
    """What json.JSONDecoder gives its scanner."""

    strict, object_hook, object_pairs_hook = True, None, None
    parse_float, parse_int, parse_constant, memo = float, int, float, {}   # type: ignore[var-annotated]
