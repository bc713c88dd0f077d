"""What a model was compiled with, as a fit that goes on must have it."""

import json
from typing import Any

import keras


def optimizer_described(model: keras.Model) -> dict[str, str]:
    """Return what a model was compiled with, as far as it decides the steps: name -> value."""
    if model.optimizer is None:
        return {}
    name = type(model.optimizer).__name__
    try:
        config = keras.saving.serialize_keras_object(model.optimizer)["config"]
        text = json.dumps(
            _that_decides(config), default=lambda value: type(value).__name__, sort_keys=True
        )
    except Exception:  # noqa: BLE001  a schedule of a user's own may have no get_config
        text = ""
    return {"the optimizer": f"{name} {text}".rstrip()}


def _that_decides(config: Any) -> Any:
    """Return a configuration without what is off, and without names, which Keras counts."""
    if not isinstance(config, dict):
        return config
    said = {name: value for name, value in config.items() if value not in (None, False)}
    return {name: _that_decides(value) for name, value in said.items() if name != "name"}
