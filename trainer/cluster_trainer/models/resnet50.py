"""ResNet-50, from random weights: 23.6 million for 10 classes.

Source: He et al., "Deep Residual Learning for Image Recognition" (2015), arXiv 1512.03385, as
keras.applications has it.
"""

import keras

from cluster_trainer.models.classifier import classifier


def build(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """Build the network for pictures of `input_shape` (height, width, channels), 32x32 or more."""
    network = keras.applications.ResNet50(
        input_shape=input_shape, include_top=False, weights=None, pooling="avg"
    )
    return classifier(network, num_classes, "resnet50")
