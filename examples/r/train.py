"""The program train.R in Python, part by part: the same model, initial weights and epoch order.

python train.py dataset=mnist epochs=3 steps=5
"""

import json
import sys

import tensorflow as tf
import tensorflow_datasets as tfds
import tf_keras as keras

settings = {
    "dataset": "digits",
    "epochs": 3,
    "steps": 5,
    "batch": 64,
    "learning_rate": 0.001,
    "seed": 0,
}
for given in sys.argv[1:]:
    name, _, text = given.partition("=")
    if name not in settings or not text:
        sys.exit(f"{given}: accepted: {'=, '.join(settings)}=")
    settings[name] = type(settings[name])(text)

strategy = tf.distribute.MultiWorkerMirroredStrategy()
replicas = strategy.num_replicas_in_sync

tfds.core.add_data_dir("/opt/cluster-trainer/data")
tfds.disable_progress_bar()

options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA


def scale(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Scale a picture from 0..255 to 0..1."""
    return tf.divide(tf.cast(image, tf.float32), 255), label


train_dataset = (
    tfds.load(settings["dataset"], split="train", as_supervised=True)
    .map(scale)
    .cache()
    .shuffle(10_000, seed=settings["seed"])
    .repeat()
    .batch(settings["batch"] * replicas)
    .with_options(options)
)

keras.utils.set_random_seed(settings["seed"])
with strategy.scope():
    layers = [
        keras.layers.Conv2D(32, 3, activation="relu", input_shape=(28, 28, 1)),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10),
    ]
    model = keras.Sequential(layers)
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(settings["learning_rate"]),
        metrics="accuracy",
    )

history = model.fit(
    train_dataset, epochs=settings["epochs"], steps_per_epoch=settings["steps"], verbose=2
).history

last = {name: values[-1] for name, values in history.items()}
print("result:", json.dumps({"replicas": replicas, **last}))
