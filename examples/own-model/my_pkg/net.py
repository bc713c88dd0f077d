"""A network for sequences."""

import keras


def build(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """Return a network: logits [n, num_classes] of sequences [n, *input_shape]."""
    layers = [
        keras.Input(input_shape),
        keras.layers.Conv1D(32, 16, strides=4, activation="relu"),
        keras.layers.Conv1D(64, 4, strides=2, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(num_classes),
    ]
    return keras.Sequential(layers, name="own_sequences")
