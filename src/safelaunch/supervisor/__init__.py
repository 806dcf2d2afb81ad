"""The supervisor in the batch step: it starts attempts, watches them, ends them, and hands the run on."""
