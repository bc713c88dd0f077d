"""Reads batches from each kind of data that Keras's `fit` takes."""
