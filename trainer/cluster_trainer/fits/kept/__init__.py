"""How one `fit` is kept: its plan, its arguments, its checkpoints, and what workers agree on."""
