"""How a supervisor leaves: the run's end, the hand-over, and what the one after it takes over."""
