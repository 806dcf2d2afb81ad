"""The rules of `why`, one literal table for each area; `why/rulebook.py` lists them all."""
