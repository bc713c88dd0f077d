"""The built-in trainer: a program that compiles a model, and calls its `fit`."""
