"""Explains why a step works on a whole batch, but fails on a share of it."""
