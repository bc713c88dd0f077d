"""A cluster of containers on this machine. Python 3.9 and its standard library alone."""
