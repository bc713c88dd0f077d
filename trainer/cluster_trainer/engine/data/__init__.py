"""The sources of batches, and each replica's share of them."""
