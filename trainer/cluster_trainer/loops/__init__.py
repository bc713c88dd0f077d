"""Training loops of a script's own, in which each worker computes its share of each batch."""
