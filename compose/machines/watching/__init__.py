"""Shows a run on machines: its workers' output, and their ends."""
