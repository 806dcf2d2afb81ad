"""What several courses of a supervisor use: questions to Slurm, progress, metering, suspicion."""
