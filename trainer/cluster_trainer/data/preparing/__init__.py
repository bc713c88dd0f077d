"""Prepares data sets of TensorFlow Datasets on disk, and the data set in the image."""
