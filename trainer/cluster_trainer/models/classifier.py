"""What the networks of keras.applications need to train from random weights, in short runs, too."""

import keras

# How much of BatchNorm's moving statistics stays at each step. Keras has 0.999 for MobileNetV2,
# meant for runs of 100,000s of steps: after 450, which had brought the training accuracy to 0.99,
# 64 % of them were still the initial values, and the test accuracy was chance (measured). 0.9 is
# PyTorch's.
BATCH_NORM_MOMENTUM = 0.9


def classifier(network: keras.Model, num_classes: int, name: str) -> keras.Model:
    """Add the logits to a network whose output is one vector for each picture."""
    for layer in network.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = BATCH_NORM_MOMENTUM
    # float32 under any precision, so that the exported model's logits are plain numbers everywhere.
    logits = keras.layers.Dense(num_classes, dtype="float32", name="predictions")(network.output)
    return keras.Model(network.input, logits, name=name)
