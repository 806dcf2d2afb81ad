"""The command line: a room for each subject, its commands and what they show."""
