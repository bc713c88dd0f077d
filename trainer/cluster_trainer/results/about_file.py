"""about.json: the description of a script's fit, as one JSON object."""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from cluster_trainer.files import write_whole

FILE = "about.json"


class AboutFile:
    """The file, which is complete or absent.

    Args:
        folder: the fit's folder; it is created if necessary.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE

    def exists(self) -> bool:
        """Tell whether this start or an earlier one has written the file."""
        return self._file.exists()

    def write(self, about: Mapping[str, Any]) -> None:
        """Write the file.

        Args:
            about: the content. A value that JSON does not know is replaced by the name of its type.

        Raises:
            OSError: the file could not be written.
        """
        text = json.dumps(_plain(about), indent=2, allow_nan=False) + "\n"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._file, text.encode(), durable=False)

    def remove(self) -> None:
        """Remove the file of an earlier start."""
        with suppress(OSError):
            self._file.unlink(missing_ok=True)


NAMES = (str, int, float, np.number)


def _plain(value: Any) -> Any:
    """Return a value that JSON knows; any other value becomes the name of its type.

    A number that is not finite becomes a string. Members are omitted unless their name is a string
    or a number.
    """
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items() if isinstance(name, NAMES)}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, float) and not math.isfinite(number):
        return str(number)
    is_known = number is None or isinstance(number, (str, int, float))
    return number if is_known else type(value).__name__
