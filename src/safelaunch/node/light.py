"""signal, socket and suppress without their slow imports: the start of every rank waits for a guard."""

from __future__ import annotations

TYPE_CHECKING = False   # typing's own takes 2.4 ms to import
if TYPE_CHECKING:
    import signal
    import socket
    from contextlib import suppress
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

# These take 12 ms: guard.io.guardcode leaves their imports out, and a guard makes up for it once its launcher runs.
LATER = ("hmac", "json")
__all__ = ["LATER", "signal", "socket", "suppress"]
