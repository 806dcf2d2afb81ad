"""What goes wrong without an end: steps that take longer, the node that slows all others, losses that leap."""
