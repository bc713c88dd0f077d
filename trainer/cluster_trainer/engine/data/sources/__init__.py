"""The sources of batches, for each kind of data that Keras's `fit` takes."""
