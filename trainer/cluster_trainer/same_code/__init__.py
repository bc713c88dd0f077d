"""Finds what workers compare to know that they run the same program."""
