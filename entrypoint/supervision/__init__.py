"""Runs the command: signals, restarts, output, and its end."""
