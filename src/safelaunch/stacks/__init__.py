"""What all ranks do: their stacks, folded into one picture and a verdict."""
