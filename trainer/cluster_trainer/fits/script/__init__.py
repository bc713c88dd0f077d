"""What the image does for a `fit` of a user's script that says nothing of checkpoints."""
