"""Stacks collected from the nodes of a job."""
