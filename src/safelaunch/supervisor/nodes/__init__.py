"""Nodes checked, measured and lost while a run goes on."""
