"""Data: the registry of data sets, the sources behind it, and the order of the batches."""
