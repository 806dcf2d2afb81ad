"""Rules of the house: what no linter in use can check, a rule a file, over one syntax tree (source.py)."""
