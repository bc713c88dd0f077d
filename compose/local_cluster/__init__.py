"""A cluster of containers on this machine. It uses only Python 3.9 and the standard library."""
