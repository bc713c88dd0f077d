"""The built-in models, for pictures (height, width, channels), with random initial weights.

- `mnist_cnn`: the tutorials' network, one convolution and two dense layers, 347,146 weights on
  28x28x1 ("Multi-worker training with Keras", tensorflow.org).
- `mobilenet_v2`: a small network, 2.3 million weights for 10 classes (Sandler et al., "MobileNetV2:
  Inverted Residuals and Linear Bottlenecks", 2018, arXiv 1801.04381).
- `resnet50`: 23.6 million weights for 10 classes (He et al., "Deep Residual Learning for Image
  Recognition", 2015, arXiv 1512.03385).
"""

import keras

# The weight of the old value in BatchNorm's moving statistics at each step. For MobileNetV2, Keras
# has 0.999, which suits runs of 100,000s of steps. After 450 steps, with a training accuracy of
# 0.99, the initial values still had a weight of 64 %, and the test accuracy was at chance level
# (measured). PyTorch has 0.9.
BATCH_NORM_MOMENTUM = 0.9


def mnist_cnn(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """Build the tutorials' network, for pictures of any size."""
    layers = [
        keras.Input(input_shape),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"),
        # float32 with any precision, so that the exported model's logits are plain numbers
        keras.layers.Dense(num_classes, dtype="float32"),
    ]
    return keras.Sequential(layers, name="mnist_cnn")


def mobilenet_v2(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """Build MobileNetV2, for pictures of 32x32 or more."""
    network = keras.applications.MobileNetV2(
        input_shape=input_shape, include_top=False, weights=None, pooling="avg"
    )
    return _with_logits(network, num_classes, "mobilenet_v2")


def resnet50(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """Build ResNet-50, for pictures of 32x32 or more."""
    network = keras.applications.ResNet50(
        input_shape=input_shape, include_top=False, weights=None, pooling="avg"
    )
    return _with_logits(network, num_classes, "resnet50")


def _with_logits(network: keras.Model, num_classes: int, name: str) -> keras.Model:
    """Add the logits to a network whose output is one vector for each picture."""
    for layer in network.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = BATCH_NORM_MOMENTUM
    logits = keras.layers.Dense(num_classes, dtype="float32", name="predictions")(network.output)
    return keras.Model(network.input, logits, name=name)
