"""Files and texts of bash that a config is made of."""
