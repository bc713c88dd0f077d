"""The settings of Keras and TensorFlow for the whole process, which all workers need alike.

A `keras.json` or a variable of one machine's environment changes them without a word in the script.
"""

import os

import keras

OF_LIBRARIES = ("KERAS_", "TF_", "XLA_")
"""How the names of variables begin with which libraries are set."""
OF_A_WORKER = ("TF_CONFIG", "KERAS_HOME", "KERAS_DISTRIBUTION_", "TF_CPP_", "XLA_FLAGS")
"""How the names of those begin that may differ: a worker's place, its folders, its log."""


def found() -> dict[str, str]:
    """Return the settings of Keras, and the variables that set libraries, name -> value."""
    told = {
        "keras.config.backend": keras.config.backend(),
        "keras.config.dtype_policy": keras.config.dtype_policy().name,
        "keras.config.epsilon": str(keras.config.epsilon()),
        "keras.config.floatx": keras.config.floatx(),
        "keras.config.image_data_format": keras.config.image_data_format(),
    }
    names = [one for one in os.environ if one.startswith(OF_LIBRARIES)]
    return told | {one: os.environ[one] for one in names if not one.startswith(OF_A_WORKER)}
