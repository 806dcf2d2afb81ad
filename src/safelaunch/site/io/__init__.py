"""A site's answers: Slurm's config, the shared folder, a small job on nodes."""
