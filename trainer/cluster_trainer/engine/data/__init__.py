"""Reads batches, and gives each replica its share of them."""
