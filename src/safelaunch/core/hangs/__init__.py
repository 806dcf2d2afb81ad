"""When a training is called hung, and why it hangs: silence, looks at all ranks, stacks folded, the verdict."""
