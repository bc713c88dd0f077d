"""Everything that the image does for the `fit` of a user's script, which asks for nothing."""
