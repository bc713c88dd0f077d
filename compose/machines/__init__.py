"""A cluster on several machines, over SSH, by Docker's own way. Python 3.9 and its standard library alone."""
