"""Mutation testing of the product: how many small faults the tests catch."""
