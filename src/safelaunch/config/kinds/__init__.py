"""The kinds of values that keys take."""
