"""Files, folders, programs and forked children: each way to touch the world once, with a deadline."""
