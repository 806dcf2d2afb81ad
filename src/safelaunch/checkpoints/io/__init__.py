"""Folders of checkpoints, listed and read in a child."""
