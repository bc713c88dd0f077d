"""What a script's fit was begun with, on disk: about.json, one object."""

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
    """A file that is there whole, or not at all.

    Args:
        folder: the fit's; it is made if need be.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE

    def exists(self) -> bool:
        """Tell whether this start, or an earlier one, has written it."""
        return self._file.exists()

    def write(self, about: Mapping[str, Any]) -> None:
        """Write it.

        Args:
            about: what it says; of what JSON does not know the type.

        Raises:
            OSError: it could not be written.
        """
        text = json.dumps(_plain(about), indent=2, allow_nan=False) + "\n"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._file, text.encode(), durable=False)

    def remove(self) -> None:
        """Remove what an earlier start has left."""
        with suppress(OSError):
            self._file.unlink(missing_ok=True)


NAMES = (str, int, float, np.number)


def _plain(value: Any) -> Any:
    """Return a value as JSON knows it: of what it does not know, its type.

    A number that is not finite is a text; what is named neither by a text nor by a number is left
    out.
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
