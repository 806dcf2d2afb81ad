"""why, for a run or any log."""
