"""What of a model is built before a step needs it."""
