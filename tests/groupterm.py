"""A TERM to the whole process group of a test run, as `timeout` sends it, ends the tests in order: fixtures clean up.

xdist's controller ends at once, and so tells its workers to stop. A worker that ended as well would leave its
sandboxes: it does nothing at a TERM, and ends its test when the controller is gone. A pytest without workers stops as
at Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import threading

import pytest

_forking = threading.local()


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        # A handler of one's own: what is executed would inherit SIG_IGN.
        signal.signal(signal.SIGTERM, lambda number, frame: None)
    elif config.getoption("dist", "no") == "no":
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    else:
        return
    os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_take_default)


def _hold() -> None:
    """A TERM to the child that comes before it has the default back waits until then, and is not lost."""
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _take_default() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _release()
