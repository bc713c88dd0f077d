"""Adds checkpoints, records and recovery to the `fit` of a user's script, without changes to it."""
