"""A training that stands still: watched, looked into, and ended."""
