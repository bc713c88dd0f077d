"""Computes the first batch both ways: in shares, and as a whole like one device."""
