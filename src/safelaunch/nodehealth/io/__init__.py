"""The ledger's files; checks and measurements on many nodes."""
