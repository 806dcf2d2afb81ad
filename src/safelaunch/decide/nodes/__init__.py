"""Which nodes an attempt gets, and which it leaves out."""
