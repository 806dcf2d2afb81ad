"""The journal's events, folded into the run's state."""
