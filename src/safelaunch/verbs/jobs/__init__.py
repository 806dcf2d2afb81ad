"""attach, shell, stacks, watch."""
