"""How the log of a run's attempts is shown: lines between attempts, equal lines of ranks, times of lines."""
