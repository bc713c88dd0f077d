"""Keeps the variables of all workers of a ring equal, from the first call on."""
