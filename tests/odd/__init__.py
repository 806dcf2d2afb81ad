"""Odd files, odd words and odd surroundings for every verb: none may end in a traceback, or never."""
