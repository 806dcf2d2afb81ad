"""Templates read, jobs submitted."""
