"""Checks of one node: whether a training can be started on it. Standard library, Python 3.9."""
