"""All that chooses, as pure functions: facts in, one named answer out."""
