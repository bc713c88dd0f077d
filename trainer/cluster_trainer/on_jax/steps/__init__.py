"""The steps of a fit: each global batch, cut over all devices of all workers."""
