"""Each script twice on a real Slurm: under plain sbatch, and under safelaunch (docs/conformance.md)."""
