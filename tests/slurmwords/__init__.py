"""What each release of Slurm really says: texts as recorded, one file a release, and the program that records them."""
