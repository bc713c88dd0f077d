"""What the workers agree on before each step of a fit, in one small sum over their devices.

A step of XLA hangs, or is wrong without a word, where one worker has other rows, values or code. So
each step begins with a few numbers of each worker, of which all get the largest.
"""

import logging
import zlib
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from cluster_trainer.on_jax.steps.batches import digest_of
from cluster_trainer.on_jax.workers.cluster import JaxWorkers
from cluster_trainer.problems import ConfigurationError, Problem, told
from cluster_trainer.settings.task import names_of

POSITIVE = 2**31 - 1
PROGRAM, VALUES = "the compiled step", "the values before a step"
SAME_DATA = (
    "Each worker needs all of the data in the same order, and takes its share. Set a seed where "
    "they are loaded, shuffled or drawn, or call `keras.utils.set_random_seed` first, with the "
    "same number on all workers."
)
SAME_CODE = (
    "A loss, a metric, a layer or the optimizer has other code, or reads other numbers, such as "
    "one from the environment or an unseeded random number."
)
ANEW = "To start over, set TRAINER_RESUME=never or another TRAINER_RUN_DIR."
DIFFERENT = (
    "the workers' weights differ %s: their processors round differently, or a callback has changed "
    "them on one worker only. All go on with those of the first worker"
)
log = logging.getLogger("trainer")


@dataclass(frozen=True)
class Agreed:
    """What holds for some worker.

    Attributes:
        stops: it was asked to stop.
        is_new: it has to compile the step.
        is_given: its values come from the model's variables, and not from the step before.
    """

    stops: bool
    is_new: bool
    is_given: bool


class Agreement:
    """The workers' notes before a step.

    Args:
        workers: this one and the others.
        whole: how arrays lie that are the same on all devices.
        cut: how arrays lie of which each device has its rows.
    """

    def __init__(self, workers: JaxWorkers, whole: NamedSharding, cut: NamedSharding) -> None:
        self._workers, self._cut, self._done = workers, cut, 0
        self._largest = jax.jit(lambda notes: notes.max(axis=0), out_shardings=whole)

    def before_step(self, batch: Any, stops: bool, is_new: bool, is_given: bool) -> Agreed:  # noqa: FBT001
        """Compare this worker's batch with the others', and return what holds for any of them.

        Raises:
            ConfigurationError: the batches differ, or only some workers have one left.
        """
        digest = digest_of(batch, self._done) & POSITIVE
        has_none = int(batch is None)
        row = [int(stops), int(is_new), int(is_given), has_none, -has_none, digest, -digest]
        notes = np.repeat(np.array([row], np.int32), len(jax.local_devices()), 0)
        shape = (len(jax.devices()), len(row))
        every = jax.make_array_from_process_local_data(self._cut, notes, shape)
        largest = np.asarray(self._largest(every).addressable_data(0)).tolist()
        number, self._done = self._done + 1, self._done + 1
        ended, lasting, most, least = largest[3], -largest[4], largest[5], -largest[6]
        if ended != lasting:
            received = f"{number - 1} batches of this start" if has_none else "more batches"
            raise _other_data(received)
        if most != least:
            raise _other_data(f"batch {number} of this start: digest {digest:08x}")
        return Agreed(*map(bool, largest[:3]))

    def alike(self, values: Any) -> Any:
        """Return the same values on all workers, those of the first one; all call it."""
        leaves, structure = jax.tree.flatten(values)
        arrays = [np.asarray(own(leaf)) for leaf in leaves]
        digest = 0
        for array in arrays:
            digest = zlib.crc32(np.ascontiguousarray(array).tobytes(), digest)
        if len(set(self._workers.gather(digest, VALUES))) == 1:
            return values
        log.warning(DIFFERENT, f"before batch {self._done} of this start")
        mine = b"".join(array.tobytes() for array in arrays) if self._workers.rank == 0 else None
        content = self._workers.broadcast(mine, 0, VALUES)
        return jax.tree.unflatten(structure, _parts(content, arrays))


def own(value: Any) -> Any:
    """Return this process's copy of a value that is the same on all devices."""
    return value.addressable_data(0) if isinstance(value, jax.Array) else value


def refuse_other_programs(workers: JaxWorkers, digest: str, before: str | None) -> None:
    """Refuse a step that compiles to another program elsewhere, or than at an earlier start.

    Args:
        workers: this one and the others, which all call it.
        digest: of the program.
        before: the digest of an earlier start; None: there was none.

    Raises:
        ConfigurationError: they differ.
    """
    everyone = workers.exchange(digest, PROGRAM)
    if len(set(everyone)) > 1:
        advice = f"{told(names_of(range(workers.count)), everyone)}. {SAME_CODE}"
        raise ConfigurationError([Problem(PROGRAM, digest, "the same on all workers", advice)])
    if before not in {None, digest}:
        accepted = f"{before}, as at the earlier start"
        raise ConfigurationError([Problem(PROGRAM, digest, accepted, f"{SAME_CODE} {ANEW}")])


def _parts(content: bytes, arrays: list[np.ndarray]) -> list[np.ndarray]:
    found, place = [], 0
    for array in arrays:
        part = content[place : place + array.nbytes]
        found.append(np.frombuffer(part, array.dtype).reshape(array.shape))
        place += array.nbytes
    return found


def _other_data(received: str) -> ConfigurationError:
    return ConfigurationError([Problem("the data", received, "the same on all workers", SAME_DATA)])
