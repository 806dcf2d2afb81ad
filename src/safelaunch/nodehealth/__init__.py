"""What is known of nodes: the ledger of suspicions, and what many nodes say of themselves."""
