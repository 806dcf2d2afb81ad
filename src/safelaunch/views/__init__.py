"""What several verbs show or look up: tables, runs, texts for people."""
