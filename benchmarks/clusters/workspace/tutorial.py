"""The four-machine tutorial's script (examples/tutorials/four-machines/train.py) for legacy Keras.

It has the tutorial's steps, in the same order, with random pictures, and as many of them as an
epoch of this benchmark takes.
"""

import made_up
import tensorflow as tf

BUFFER_SIZE = 10000

strategy = tf.distribute.MultiWorkerMirroredStrategy()


def make_datasets_unbatched() -> tf.data.Dataset:
    """Return the examples as the tutorial prepares those of MNIST."""

    def scale(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        image = tf.cast(image, tf.float32)
        image /= 255
        return image, label

    train, _ = made_up.digits()
    examples = tf.data.Dataset.from_tensor_slices(train).map(scale).cache().shuffle(BUFFER_SIZE)
    return examples.repeat()


train_datasets = make_datasets_unbatched().batch(made_up.BATCH)
with strategy.scope():
    multi_worker_model = made_up.network()
multi_worker_model.fit(
    x=train_datasets,
    epochs=made_up.EPOCHS,
    steps_per_epoch=made_up.STEPS,
    verbose=0,
    callbacks=[made_up.Clock()],
)
