"""Gives metrics the sums over all replicas: in logs, between epochs and in checkpoints."""
