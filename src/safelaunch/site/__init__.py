"""What a site's Slurm, its nodes and its filesystem mean for a run: facts in, rows of site.sitefolder out."""
