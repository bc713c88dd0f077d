"""Functions for a script's own training loop, in which each worker takes its share of a batch."""
