"""Keeps the variables of all workers of a ring alike, from the first call on."""
