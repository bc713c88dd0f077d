"""The tutorials' network: one convolution and two dense layers, 347,146 weights on 28x28x1.

Source: "Multi-worker training with Keras", tensorflow.org.
"""

import keras


def build(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """Build the network for pictures of `input_shape` (height, width, channels)."""
    return keras.Sequential(
        [
            keras.Input(input_shape),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            # float32 under any precision, so that the exported model's logits are plain numbers.
            keras.layers.Dense(num_classes, dtype="float32"),
        ],
        name="mnist_cnn",
    )
