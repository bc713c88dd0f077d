"""Your own script with the image's `fit`: any Keras model, one call.

Keras's own `model.fit` works on several workers, too (docs/reference/keras.md). The image's `fit`
also writes the files of `python -m trainer`: metrics, a result, the trained model. The same script
runs on one device, on all GPUs of a machine, and on a cluster.
"""

import keras
import numpy as np

from cluster_trainer import fit, start_strategy

strategy = start_strategy()  # on a cluster it waits for the other workers


def load():
    """Return (train, test), each pictures [n, 8, 8, 1] and labels [n]: 1 if there is a ring."""
    noise = np.random.default_rng(0)
    pictures = noise.integers(0, 120, (2000, 8, 8, 1)).astype(np.uint8)
    labels = np.arange(2000) % 2
    pictures[labels == 1, 2:6, 2:6] += 130
    pictures[labels == 1, 3:5, 3:5] -= 130
    return (pictures[:1800], labels[:1800]), (pictures[1800:], labels[1800:])


def build():
    """Return a network with two logits."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(16, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(2),
        ],
        name="ring_net",
    )


keras.utils.set_random_seed(42)
with strategy.scope():  # variables made here are mirrored on all devices of all workers
    model = build()
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)

# All other settings come from the TRAINER_ variables, such as `-e TRAINER_EPOCHS=10`.
history = fit(model, load(), optimizer=optimizer, global_batch_size=60)
print(f"test accuracy {history[-1].test_accuracy:.3f} after {history[-1].step} steps")
