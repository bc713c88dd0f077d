"""The names with which a model can be compiled; known without importing TensorFlow."""

import re

from cluster_trainer.settings.names.references import is_reference, module_exists

# Keras's optimizers that need only a learning rate, and SGD with momentum 0.9.
OPTIMIZERS = (
    "adadelta",
    "adafactor",
    "adagrad",
    "adam",
    "adamax",
    "adamw",
    "ftrl",
    "lamb",
    "lion",
    "momentum",
    "nadam",
    "rmsprop",
    "sgd",
)
OPTIMIZER = f"{', '.join(OPTIMIZERS)}, or module:function of your own in /workspace"
LOSS = "a loss of keras.losses by its name, or module:function of your own in /workspace"
METRICS = (
    "metrics of keras.metrics by their names, or module:function of your own in /workspace, with "
    "commas between them"
)
NAME = re.compile(r"[A-Za-z_]\w*")


def is_optimizer(name: str) -> bool:
    """Tell whether there is an optimizer of that name, or a package for a module:function."""
    return name in OPTIMIZERS or (is_reference(name) and module_exists(name))


def is_name(name: str) -> bool:
    """Tell whether Keras could know that name, or whether there is a package for it."""
    if is_reference(name):
        return module_exists(name)
    return NAME.fullmatch(name) is not None
