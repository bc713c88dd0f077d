"""The folder in which a script runs if its own is read-only: a mirror in the worker's folder."""
