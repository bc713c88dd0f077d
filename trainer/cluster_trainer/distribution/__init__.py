"""Sets up devices and threads, and builds the strategy or the ring."""
