"""safelaunch: sbatch for long trainings, with fault tolerance built in."""

__version__ = "0.1.0"
