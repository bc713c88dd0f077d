"""How TensorFlow is imported: it takes seconds, on each worker and after each loss."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Import without looking for garbage in between, which takes a sixth of the time.

    There is hardly any: modules stay. Later collections leave out what is there by then, too.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
