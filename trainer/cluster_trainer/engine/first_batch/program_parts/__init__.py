"""Finds the parts of a program whose results may depend on how a batch is divided."""
