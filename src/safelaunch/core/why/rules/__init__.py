"""The rules of `why`, one literal table for each area; `core/rulebook.py` lists them all."""
