"""The settings of Keras and TensorFlow for the whole process, which all workers need alike.

A `keras.json` or a variable of one machine's environment can change them, unseen by the script.
"""

import os

import keras

VARIABLES = (
    *("KERAS_BACKEND", "KERAS_FLOATX", "KERAS_NNX_ENABLED", "NVIDIA_TF32_OVERRIDE"),
    *("TF_CUDNN_DETERMINISTIC", "TF_DETERMINISTIC_OPS", "TF_ENABLE_AUTO_MIXED_PRECISION"),
    *("TF_ENABLE_ONEDNN_OPTS", "TF_USE_LEGACY_KERAS", "TF_XLA_FLAGS"),
)
"""The variables that change what Keras or TensorFlow compute; those of speed may differ."""


def found() -> dict[str, str]:
    """Return the settings of Keras, and the variables that set libraries, name -> value."""
    told = {
        "keras.config.backend": keras.config.backend(),
        "keras.config.epsilon": str(keras.config.epsilon()),
        "keras.config.floatx": keras.config.floatx(),
        "keras.config.image_data_format": keras.config.image_data_format(),
    }
    return told | {name: os.environ[name] for name in VARIABLES if name in os.environ}
