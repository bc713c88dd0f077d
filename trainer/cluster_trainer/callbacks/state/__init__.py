"""Saves the state of callbacks, and other state outside of the model, in checkpoints."""
