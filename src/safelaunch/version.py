"""The version of this package, as pyproject.toml says it."""

__version__ = "0.1.0"
