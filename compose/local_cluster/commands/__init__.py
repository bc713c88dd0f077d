"""The commands of cluster.py, one in each file."""
