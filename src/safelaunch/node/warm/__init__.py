"""Interpreters that a node keeps ready for the next attempt's ranks (`restart.warm`)."""
