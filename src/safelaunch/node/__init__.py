"""What runs on every compute node: standard library and psutil only, Python 3.9 or newer."""
