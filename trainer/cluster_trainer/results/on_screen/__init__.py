"""Displays a run: log lines, a line that is redrawn, and the choice of workers that print them."""
