"""Loads data sets by name, and passes them to Keras's `fit`."""
