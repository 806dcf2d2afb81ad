"""YAML read strictly: every node with its line, every error at once."""
