"""One saved `fit`: its options, arguments and checkpoints, and the workers' agreement."""
