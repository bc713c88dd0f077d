"""MobileNetV2, a small network for pictures, from random weights: 2.3 million for 10 classes.

Source: Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks" (2018),
arXiv 1801.04381, as keras.applications has it.
"""

import keras

from cluster_trainer.models.classifier import classifier


def build(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """Build the network for pictures of `input_shape` (height, width, channels), 32x32 or more."""
    network = keras.applications.MobileNetV2(
        input_shape=input_shape, include_top=False, weights=None, pooling="avg"
    )
    return classifier(network, num_classes, "mobilenet_v2")
