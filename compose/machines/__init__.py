"""A cluster on several machines, over SSH. Python 3.9 and its standard library alone."""
