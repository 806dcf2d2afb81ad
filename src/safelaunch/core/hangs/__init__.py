"""When a training counts as hung, and why it hangs: silence, samples of all ranks, folded stacks, the verdict."""
