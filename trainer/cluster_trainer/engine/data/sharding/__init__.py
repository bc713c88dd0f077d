"""Runs the costly steps of a tf.data pipeline for a worker's own rows only."""
