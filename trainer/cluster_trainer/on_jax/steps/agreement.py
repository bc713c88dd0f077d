"""Lets the workers agree before each step of a fit, in one small exchange over their devices.

If the workers have different rows, values or code, a step of XLA hangs, or is silently wrong. So
before each step, the workers exchange a few numbers, and all of them get the largest of each.
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
    "A loss, a metric, a layer or the optimizer has different code, or reads different numbers, "
    "such as one from the environment or an unseeded random number."
)
ANEW = "To start over, set TRAINER_RESUME=never or another TRAINER_RUN_DIR."
DIFFERENT = (
    "the workers' weights differ %s: their processors round differently, or a callback has changed "
    "them on one worker only. All workers continue with the first worker's weights"
)
log = logging.getLogger("trainer")


@dataclass(frozen=True)
class Agreed:
    """The result of the exchange before a step.

    Attributes:
        stops: whether any worker was asked to stop.
        is_new: whether any worker has to compile the step.
        is_given: whether any worker's values come from the model's variables, and not from the
            step before.
    """

    stops: bool
    is_new: bool
    is_given: bool


class Agreement:
    """Lets the workers agree before each step.

    Args:
        workers: the workers that train together.
        whole: the sharding of arrays that all devices hold as a whole.
        cut: the sharding of arrays whose rows are divided among the devices.
    """

    def __init__(self, workers: JaxWorkers, whole: NamedSharding, cut: NamedSharding) -> None:
        self._workers, self._cut, self._done = workers, cut, 0
        self._largest = jax.jit(lambda notes: notes.max(axis=0), out_shardings=whole)

    def before_step(self, batch: Any, stops: bool, is_new: bool, is_given: bool) -> Agreed:  # noqa: FBT001
        """Compare the workers' batches, and exchange the workers' states; all workers call this.

        Args:
            batch: this worker's batch; None: it has none left.
            stops: whether this worker was asked to stop.
            is_new: whether it has to compile the step.
            is_given: whether its values come from the model's variables.

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
        """Return the first worker's values on all workers; all workers call this."""
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
    """Return this process's copy of a value that all devices hold."""
    return value.addressable_data(0) if isinstance(value, jax.Array) else value


def refuse_other_programs(workers: JaxWorkers, digest: str, before: str | None) -> None:
    """Refuse a step whose program differs between workers, or from an earlier start's.

    All workers call this.

    Args:
        workers: the workers that train together.
        digest: the digest of the program.
        before: the digest of an earlier start; None: there was none.

    Raises:
        ConfigurationError: the programs differ.
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
