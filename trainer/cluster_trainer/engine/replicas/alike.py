"""All workers of a ring begin with the chief's values.

A strategy of TensorFlow's gives each variable the chief's first value when it is created. A script
without one creates its variables on each worker for itself, from seeds of its own if it sets none.
"""

import hashlib
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np

from cluster_trainer.collectives.group import AnyRing
from cluster_trainer.collectives.replicas import ring_of
from cluster_trainer.engine import running

CHIEF = 0
SHOWN = 5
log = logging.getLogger("trainer")


def make(model: keras.Model, more: Iterable[Any] = ()) -> None:
    """Give a model's and its optimizer's variables the chief's values; all workers call it.

    Args:
        model: some of whose variables may not exist yet.
        more: other variables, which may be the model's, too.

    Raises:
        ValueError: the workers have other models.
    """
    ring = ring_of(model.distribute_strategy)
    if ring is None:
        return
    variables = [*model.variables, *more]
    if model.optimizer is not None:
        variables += model.optimizer.variables
    _take_from_chief(list({id(one): one for one in variables}.values()), ring)


def _take_from_chief(variables: Sequence[Any], ring: AnyRing) -> None:
    values = [np.asarray(one.value) for one in variables]
    # Not their names, in which Keras counts layers: one worker may have made others before.
    forms = [f"{value.dtype} {list(value.shape)}" for value in values]
    call = running.current().name
    digest = _digest(form.encode() for form in forms)
    if len({*ring.all_gather(digest, what=f"{call} (a model's variables)")}) > 1:
        names = ", ".join(one.path for one in variables[:SHOWN])
        raise ValueError(
            f"The workers' models have different variables; here there are {len(variables)}: "
            f"{names}, … Each worker has to run the same script."
        )
    content, what = b"".join(value.tobytes() for value in values), f"{call} (a model's values)"
    if len({*ring.all_gather(_digest([content]), what=what)}) == 1:  # as after a `fit`
        return
    is_chief = ring.rank == CHIEF
    content, begin = ring.broadcast(content if is_chief else None, CHIEF, what=what), 0
    if not is_chief:
        for variable, value in zip(variables, values, strict=True):
            given = np.frombuffer(content, value.dtype, value.size, begin).reshape(value.shape)
            variable.assign(given)
            begin += value.nbytes
    log.debug("%d variables begin with the chief's values", len(variables))


def _digest(parts: Iterable[bytes]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8) + part)
    return digest.digest()
