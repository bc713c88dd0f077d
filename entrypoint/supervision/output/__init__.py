"""Forwards a command's output, unchanged or as JSON lines."""
