"""The rows of the table of causes."""
