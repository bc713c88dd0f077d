"""Models, built-in and your own; each is a function (input_shape, num_classes) -> keras.Model.

A built-in model (`networks.py`) takes a batch, [n, *input_shape], and returns logits, [n,
num_classes], without a softmax. `build.py` builds the model that the settings name, and
`compiling.py` compiles it.
"""
