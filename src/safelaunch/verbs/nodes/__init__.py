"""nodes: the ledger shown, checked, measured."""
