"""help, completion."""
