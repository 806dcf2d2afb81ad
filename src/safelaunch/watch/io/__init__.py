"""`safelaunch watch`: files read, acts done, what it remembers."""
