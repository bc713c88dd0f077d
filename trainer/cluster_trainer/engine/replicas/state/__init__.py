"""Handles the variables that a step assigns, whose values may differ between replicas."""
