"""How one `fit` is kept: its options, its arguments, its checkpoints, and what workers agree on."""
