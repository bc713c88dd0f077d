"""Custom training loops of scripts: each worker computes its share of each batch."""
