"""Runs the command: signals, restarts, output, and how it ended."""
