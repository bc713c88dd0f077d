"""The learning rate of the next step, for those who look on."""

from typing import Any

import keras


def present_rate(model: Any) -> float | None:
    """Return it; None where there is none, or none that can be told.

    A schedule of a user's own may have no rate for the step that follows the last one.
    """
    try:
        rate = getattr(getattr(model, "optimizer", None), "learning_rate", None)
        return None if rate is None else float(keras.ops.convert_to_numpy(rate))
    except Exception:  # noqa: BLE001  whatever a schedule raises is no reason to end a training
        return None
