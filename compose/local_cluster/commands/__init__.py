"""One command of cluster.py a file."""
