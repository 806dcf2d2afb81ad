"""safelaunch: sbatch for long trainings, with fault tolerance built in.

    import safelaunch
    run = safelaunch.submit("train.yaml")

The rest of docs/python.md is imported when it is first asked for. A training may `import safelaunch` and call
`safelaunch.progress(step)`: nothing else is imported for it. One that does not want safelaunch's dependencies beside it
takes safelaunch_progress.py alone.
"""

from __future__ import annotations

from safelaunch.safelaunch_progress import progress
from safelaunch.version import __version__

TYPE_CHECKING = False   # as typing's, whose import takes longer than all the rest
if TYPE_CHECKING:
    from safelaunch import errors
    from safelaunch.api import RunHandle as Run
    from safelaunch.api import load, runs, submit, submit_sweep
    from safelaunch.rankprint import print0, print_locked
    from safelaunch.verbs.common.eventwords import describe

__all__ = ["Run", "__version__", "describe", "errors", "load", "print0", "print_locked", "progress", "runs", "submit",
           "submit_sweep"]

# name → module, and its name there; "" = the module itself.
_LATER = {
    "Run": ("safelaunch.api", "RunHandle"),
    "load": ("safelaunch.api", "load"),
    "runs": ("safelaunch.api", "runs"),
    "submit": ("safelaunch.api", "submit"),
    "submit_sweep": ("safelaunch.api", "submit_sweep"),
    "print0": ("safelaunch.rankprint", "print0"),
    "print_locked": ("safelaunch.rankprint", "print_locked"),
    "describe": ("safelaunch.verbs.common.eventwords", "describe"),
    "errors": ("safelaunch.errors", ""),
}


def __getattr__(name: str) -> object:
    """What is imported when it is first asked for."""
    if name not in _LATER:
        raise AttributeError(f"module 'safelaunch' has no attribute {name!r}")
    import importlib

    module, inside = _LATER[name]
    found = importlib.import_module(module)
    return globals().setdefault(name, getattr(found, inside) if inside else found)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
