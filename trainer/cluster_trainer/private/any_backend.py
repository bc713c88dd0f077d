"""Keras's private names that are the same on any backend, as read in Keras 3.15.1; no TensorFlow.

`keras_names.py` has the names of Keras on TensorFlow, `keras_jax_names.py` of Keras on JAX.
"""

import keras

# The seed of `keras.utils.set_random_seed`, and the process's seed generator, which a checkpoint
# saves; there is no public access to them.
from keras.src.backend.common.global_state import get_global_attribute, set_global_attribute
from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR, global_seed_generator
from keras.src.utils.rng_utils import get_random_seed

STATE_OF_CALLBACKS = {
    keras.callbacks.EarlyStopping: ("wait", "stopped_epoch", "best", "best_weights", "best_epoch"),
    keras.callbacks.ReduceLROnPlateau: ("wait", "best", "cooldown_counter"),
    keras.callbacks.ModelCheckpoint: (
        "best",
        "_batches_seen_since_last_saving",
        "_last_batch_seen",
    ),
    keras.callbacks.TensorBoard: ("_global_train_batch", "_global_test_batch"),
    keras.callbacks.SwapEMAWeights: ("_ema_weights_in_model",),
    keras.callbacks.History: ("epoch", "history"),
}
"""The state that decides a callback's actions, which a checkpoint saves; some names are public."""
OF_TRACKING = "_self_"
"""The beginning of the names of a layer's attributes by which TensorFlow tracks its parts."""
SET_BY_KERAS = ("_model", "model", "params", "validation_data", "_current_epoch")
"""The attributes that Keras itself sets on any callback. They are not a user's own state."""
