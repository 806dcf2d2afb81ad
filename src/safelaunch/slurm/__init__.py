"""Slurm's words and texts, read and written; no command is called here."""
