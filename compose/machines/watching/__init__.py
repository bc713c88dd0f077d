"""Shows a run on machines: the lines and the ends of its workers."""
