"""What is seen, and what can be done: the words in which all choices are made."""
