"""Data sets of TensorFlow Datasets made ready on disk, and the one that the image brings."""
