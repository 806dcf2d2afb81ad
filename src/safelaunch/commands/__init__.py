"""One file per verb of the command line; cli.py imports each lazily."""
