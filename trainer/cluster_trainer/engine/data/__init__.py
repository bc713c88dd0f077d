"""Where batches come from, and which examples are whose."""
