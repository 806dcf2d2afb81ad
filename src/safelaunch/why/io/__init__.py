"""Logs as files: what is read of them, how fast, and where their lines are."""
