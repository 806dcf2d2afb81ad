"""The layouts of checkpoints, a judge for each."""
