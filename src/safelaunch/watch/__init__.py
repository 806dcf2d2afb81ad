"""`safelaunch watch`: the look at all runs from outside their jobs."""
