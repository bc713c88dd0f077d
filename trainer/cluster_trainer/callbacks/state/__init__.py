"""The state of callbacks, and other state of a program beside its model, in checkpoints."""
