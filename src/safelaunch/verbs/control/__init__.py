"""stop, hold, resume, extend, release, change, save, restart, wait, clean."""
