"""The addresses of many names at once, beside a loop that must not wait: a name server can be slow, or gone."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from safelaunch.base.io.probe import BackgroundChild
from safelaunch.guard.io.job import addresses_of

AT_ONCE = 32        # questions; 250 names of 0.19 s each took the leader 45 s one after another
WITHIN_S = 10.0     # for all of them; a resolver of its own waits for 10 s and more where its server is gone


class Names:
    """What names resolve to, found out in a child; poll it."""

    def __init__(self, nodes: Iterable[str]) -> None:
        asked = tuple(nodes)
        self._child: BackgroundChild | None = None   # None: nobody can be asked
        with contextlib.suppress(OSError):
            self._child = BackgroundChild(lambda: resolve(asked), WITHIN_S + 1.0)

    def poll(self) -> Mapping[str, tuple[str, ...]] | None:
        """The addresses of each name that resolves; None = not yet. Not to be asked again after it."""
        answer = self._child.poll() if self._child is not None else None
        if answer is None:
            return None if self._child is not None else {}
        return {node: tuple(found) for node, found in (answer.value or {}).items()}


def resolve(nodes: Iterable[str], within_s: float = WITHIN_S,
            ask: Callable[[str], tuple[str, ...]] = addresses_of) -> dict[str, tuple[str, ...]]:
    """The addresses of each name that resolves within that time."""
    left, found = list(nodes), dict[str, tuple[str, ...]]()

    def work() -> None:
        while left:
            try:
                node = left.pop()
            except IndexError:   # another thread was faster
                return
            if addresses := ask(node):
                found[node] = addresses

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(AT_ONCE, len(left)))]
    until_s = time.monotonic() + within_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until_s - time.monotonic()))
    return dict(found)
