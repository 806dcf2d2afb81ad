"""What several verbs share: tables, runs, texts for people."""
