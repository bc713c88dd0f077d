"""Wraps Keras's own `fit`, `evaluate`, `predict` and calls on one batch."""
