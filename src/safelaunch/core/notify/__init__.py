"""What people are told about a run without asking: which events, how often, in which words, and to whom."""
