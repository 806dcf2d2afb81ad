"""What each finding is worth as the cause, and what speaks against it."""
