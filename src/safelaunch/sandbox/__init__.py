"""A real Slurm of N nodes on this machine, for the demo, the tests and the curious."""
