"""What safelaunch costs and how fast it is, beside its peers in the same run: `python -m benchmarks [NAME…]`."""
