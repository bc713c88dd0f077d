"""Where batches come from, for each kind of data that Keras's `fit` takes."""
