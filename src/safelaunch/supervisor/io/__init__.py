"""The world of a supervisor: its clock, connections, attempts' processes, fences."""
