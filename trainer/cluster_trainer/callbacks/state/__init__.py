"""The state of callbacks, and what else a program keeps beside its model, in checkpoints."""
