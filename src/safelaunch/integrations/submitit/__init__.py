"""submitit's plugin: `submitit.AutoExecutor(folder, cluster="safelaunch")` (docs/python.md)."""
