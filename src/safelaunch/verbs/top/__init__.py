"""The screen that stays."""
