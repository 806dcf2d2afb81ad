"""A run: its plan, journal, acts, heartbeat and story. Values in, values out."""
