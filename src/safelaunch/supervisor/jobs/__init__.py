"""The next job, and the standby on another node."""
