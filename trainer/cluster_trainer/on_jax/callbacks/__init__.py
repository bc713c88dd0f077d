"""The callbacks that a fit gets from us, and what they need: checkpoints, numbers, stops."""
