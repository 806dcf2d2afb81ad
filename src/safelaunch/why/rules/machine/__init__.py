"""Rules for what machines say: devices, kernel, memory, network, storage, Slurm."""
