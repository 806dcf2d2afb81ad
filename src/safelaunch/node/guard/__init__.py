"""The node guard: parent of the launcher on each node. Its parts travel as one text (guard.io.guardcode)."""
