"""Names that job scripts of 0.1 import; each stands in its room now."""
