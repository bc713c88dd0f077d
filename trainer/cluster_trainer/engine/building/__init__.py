"""Builds parts of a model before a step needs them."""
