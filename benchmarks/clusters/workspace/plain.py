"""A script for one machine, without tf.distribute."""

import made_up

inputs, labels = made_up.batches()
model = made_up.network()
model.fit(
    inputs,
    labels,
    batch_size=made_up.BATCH,
    epochs=made_up.EPOCHS,
    verbose=0,
    callbacks=[made_up.Clock()],
)
