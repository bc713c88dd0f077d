"""Decodes, resizes and caches the pictures of a data set of TensorFlow Datasets."""
