"""A user's own model, as docs tell: module:function of (input_shape, num_classes)."""

import keras


def build(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """A linear model: logits [n, num_classes] of inputs [n, *input_shape]."""
    layers = [keras.Input(input_shape), keras.layers.Flatten(), keras.layers.Dense(num_classes)]
    return keras.Sequential(layers, name="own_linear")
