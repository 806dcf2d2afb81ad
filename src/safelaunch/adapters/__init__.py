"""The world, one file per world."""
