"""report: of one run, and of a month."""
