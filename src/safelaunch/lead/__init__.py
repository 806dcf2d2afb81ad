"""The leader's parts: who it is, how it is born, what it sees, and what it does. loop.py puts them together."""
