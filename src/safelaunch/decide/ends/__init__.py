"""How attempts, jobs and runs end."""
