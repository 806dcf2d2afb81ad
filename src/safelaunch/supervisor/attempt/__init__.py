"""An attempt from its nodes to its end."""
