"""The job script, rendered from fragments, and the later jobs of a run."""
