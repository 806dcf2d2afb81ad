"""signal, socket and suppress without what makes their import slow: the start of every rank waits for a guard."""

from __future__ import annotations

TYPE_CHECKING = False   # as typing's own, whose import takes 2.4 ms
if TYPE_CHECKING:
    import signal
    import socket
    from contextlib import suppress
else:
    # The same functions and numbers without their enums: socket takes 7.6 ms and signal 4.5, these take 0.4 each.
    import _signal as signal
    import _socket as socket

    class suppress:   # noqa: N801
        """As contextlib's, whose import takes 4 ms."""

        def __init__(self, *kinds):
            self.kinds = kinds

        def __enter__(self):
            return None

        def __exit__(self, kind, error, trace):
            return kind is not None and issubclass(kind, self.kinds)

__all__ = ["signal", "socket", "suppress"]
