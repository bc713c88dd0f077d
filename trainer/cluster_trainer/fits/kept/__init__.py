"""A saved `fit`: its options, its arguments, its checkpoints, and the agreement of the workers."""
