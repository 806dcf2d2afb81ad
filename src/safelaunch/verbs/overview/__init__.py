"""All runs at a glance: rows, queue, checkpoints, for `status` and `top`."""
