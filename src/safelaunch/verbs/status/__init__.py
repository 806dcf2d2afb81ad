"""status, its sweeps, checkpoints, metrics."""
