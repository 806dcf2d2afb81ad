"""safelaunch: sbatch for long trainings, with fault tolerance built in.

A training may `import safelaunch` and call `safelaunch.progress(step)`: nothing else is imported for it. One that does
not want safelaunch's dependencies beside it takes safelaunch_progress.py alone.
"""

from safelaunch.safelaunch_progress import progress

__all__ = ["progress"]
__version__ = "0.1.0"
