"""What people are told about a run without asking: to whom, how often, in which words."""
