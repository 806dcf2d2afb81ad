"""logs, progress, events."""
