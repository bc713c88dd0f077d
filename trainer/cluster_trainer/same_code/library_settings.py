"""The settings of Python, Keras and TensorFlow for the process, which all workers need alike.

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
HASH_SEED = "PYTHONHASHSEED"
"""Python's variable for the order of sets of strings; the entrypoint sets it."""


def found() -> dict[str, str]:
    """Return the settings of Keras, and the variables of Python and libraries, name -> value."""
    told = {
        "keras.config.backend": keras.config.backend(),
        "keras.config.epsilon": str(keras.config.epsilon()),
        "keras.config.floatx": keras.config.floatx(),
        "keras.config.image_data_format": keras.config.image_data_format(),
    }
    told |= {name: os.environ[name] for name in VARIABLES if name in os.environ}
    return told | (_hashes() if HASH_SEED in os.environ else {})


def _hashes() -> dict[str, str]:
    """Return PYTHONHASHSEED with a hash: `random`, or `python -E`, gives each process another."""
    return {HASH_SEED: f"{os.environ[HASH_SEED]}, with which Python hashes to {hash(HASH_SEED)}"}
