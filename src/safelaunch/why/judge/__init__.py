"""The verdict: from the log, from the journal, from evidence beside them."""
