"""The training step of a fit, on all devices of all workers.

XLA computes the step for the global batch as on one device, whatever the devices: it cuts the
work, and adds the sums that are needed, such as those of gradients and of BatchNormalization's
statistics. A batch whose rows do not divide evenly is given to all devices whole. So the result is
that of one device for any model, up to rounding.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import keras
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from cluster_trainer.on_jax.batches import digest_of
from cluster_trainer.problems import ConfigurationError, Problem

AXIS = "batch"
POSITIVE = 2**31 - 1
SAME_DATA = (
    "Each worker needs all of the data in the same order, and takes its share. Set a seed where "
    "they are loaded, shuffled or drawn, or call `keras.utils.set_random_seed` first, with the "
    "same number on all workers."
)


class Steps:
    """A model's train function for the time of a fit: calls Keras's own `train_step`.

    Args:
        model: the one to train.
        is_to_stop: tells whether this worker was asked to stop.

    Attributes:
        stops: whether any worker was, before the last step.
    """

    def __init__(self, model: Any, is_to_stop: Callable[[], bool]) -> None:
        devices = np.array(jax.devices())
        self._devices, self._here = len(devices), len(jax.local_devices())
        self._first = jax.process_index() * self._here
        mesh = Mesh(devices, (AXIS,))
        self._whole = NamedSharding(mesh, PartitionSpec())
        self._cut = NamedSharding(mesh, PartitionSpec(AXIS))
        self._is_to_stop, self.stops, self._done = is_to_stop, False, 0

        def step(state: Any, batch: Any, notes: Any) -> Any:
            logs, state = model.train_step(state, batch)
            return logs, state, notes.max(axis=0)

        self._step = jax.jit(step, donate_argnums=0, out_shardings=self._whole)

    def __call__(self, state: Any, iterator: Iterator[Any]) -> tuple[Any, Any]:
        """Train one batch.

        Raises:
            StopIteration: there is none left.
            ConfigurationError: the workers have read different batches.
        """
        batch = next(iterator)
        digest = digest_of(batch, self._done) & POSITIVE
        state = jax.tree.map(self._of_all, state)
        logs, state, noted = self._step(state, self._shared(batch), self._notes(digest))
        stops, most, least = np.asarray(noted)
        if most != -least:
            received = f"batch {self._done + 1} of this start: digest {digest:08x}"
            raise ConfigurationError(
                [Problem("the data", received, "the same on all workers", SAME_DATA)]
            )
        self.stops, self._done = bool(stops), self._done + 1
        return jax.tree.map(of_this_process, logs), state

    def _notes(self, digest: int) -> jax.Array:
        """Return what the workers tell each other within a step, of which the largest counts."""
        row = np.array([[int(self._is_to_stop()), digest, -digest]], np.int32)
        return self._given(np.repeat(row, self._here, 0), self._cut, (self._devices, 3))

    def _shared(self, batch: Any) -> Any:
        leaves = [leaf for leaf in keras.tree.flatten(batch) if leaf is not None]
        sizes = {leaf.shape[0] if leaf.ndim else 0 for leaf in leaves}
        rows = sizes.pop() if len(sizes) == 1 else 0
        is_cut = rows > 0 and rows % self._devices == 0

        def share(leaf: Any) -> Any:
            if leaf is None:
                return None
            if not is_cut:
                return self._given(leaf, self._whole, leaf.shape)
            size = rows // self._devices
            first, last = self._first * size, (self._first + self._here) * size
            return self._given(leaf[first:last], self._cut, leaf.shape)

        return jax.tree.map(share, batch)

    def _of_all(self, value: Any) -> Any:
        """Return an array of this process as one of all, which has the same value everywhere."""
        if isinstance(value, jax.Array) and value.sharding == self._whole:
            return value
        here = [jax.device_put(value, one) for one in jax.local_devices()]
        return jax.make_array_from_single_device_arrays(value.shape, self._whole, here)

    @staticmethod
    def _given(mine: np.ndarray, sharding: NamedSharding, shape: tuple[int, ...]) -> jax.Array:
        return jax.make_array_from_process_local_data(sharding, mine, shape)


def of_this_process(value: Any) -> Any:
    """Return the array on this process's first device of one that is the same on all devices."""
    return value.addressable_data(0) if isinstance(value, jax.Array) else value
