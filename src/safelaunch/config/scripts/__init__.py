"""The user's own sbatch script: its directives, options, folders and hints."""
