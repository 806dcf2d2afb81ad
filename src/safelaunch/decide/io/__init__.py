"""Which nodes Slurm knows."""
