"""Slurm's commands, and steps of our own on nodes of a job."""
