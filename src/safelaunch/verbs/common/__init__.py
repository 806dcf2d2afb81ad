"""What several verbs share: runs, terminal, words for events, confirmation."""
