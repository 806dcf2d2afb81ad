"""The version of this package, as pyproject.toml says it."""

__version__ = "0.2.0"
