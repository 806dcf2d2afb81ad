"""When a training counts as hung, why it hangs, and the proof."""
