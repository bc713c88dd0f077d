"""The same under MultiWorkerMirroredStrategy, as Keras's own tutorial has it."""

import made_up
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
inputs, labels = made_up.batches()
with strategy.scope():
    model = made_up.network()
model.fit(
    inputs,
    labels,
    batch_size=made_up.BATCH,
    epochs=made_up.EPOCHS,
    verbose=0,
    callbacks=[made_up.Clock()],
)
