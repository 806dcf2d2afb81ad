"""The node that slows all others, and steps that take longer: found in figures."""
