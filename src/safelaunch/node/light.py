"""signal, socket, suppress and JSON without their slow imports: the start of every rank waits for a guard."""

from __future__ import annotations

TYPE_CHECKING = False   # typing's own takes 2.4 ms to import
if TYPE_CHECKING:
    import signal
    import socket
    from contextlib import suppress
    from typing import Any
else:
    # The same functions and numbers without their enums: socket takes 7.6 ms and signal 4.5, these take 0.4 each.
    import _signal as signal
    import _socket as socket

    class suppress:   # noqa: N801
        """contextlib's takes 4 ms to import."""

        def __init__(self, *kinds):
            self.kinds = kinds

        def __enter__(self):
            return None

        def __exit__(self, kind, error, trace):
            return kind is not None and issubclass(kind, self.kinds)



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


# These take 12 ms: adapters.guardcode leaves their imports out, and a guard makes up for it once its launcher runs.
LATER = ("hmac", "json")
__all__ = ["LATER", "read_json", "signal", "socket", "suppress"]
