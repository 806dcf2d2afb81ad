"""Entry points and rule packs, found and loaded in children."""
