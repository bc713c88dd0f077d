"""The training step of a fit, on all devices of all workers.

XLA computes the step for the global batch as one device would: it divides the work, and inserts the
necessary sums, such as those of gradients and of BatchNormalization's statistics. If the rows of a
batch do not divide evenly, every device gets the whole batch. So for any model, the result is that
of one device, up to rounding.

XLA assumes that all workers run the same program with the same values and rows. So the workers
check this before each step: see `agreement.py`.
"""

import re
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import jax
import keras
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from cluster_trainer.on_jax.steps.agreement import Agreement, refuse_other_programs
from cluster_trainer.on_jax.workers.cluster import JaxWorkers

AXIS = "batch"
CALLBACKS = re.compile(r"(callback\b[^\n]*?)\d{6,}")
"""The addresses and counters of Python functions in a program, which differ between processes."""
_tracing: list[bool] = []


class Steps:
    """A model's train function for the time of a fit, which calls Keras's own `train_step`.

    Args:
        model: the model to train.
        workers: the workers that train together.
        is_to_stop: tells whether this worker was asked to stop.
        programs: digests of the compiled steps of earlier starts, by the shapes of their arguments;
            those of this start are added.

    Attributes:
        stops: whether any worker was asked to stop before the last step.
    """

    def __init__(
        self,
        model: Any,
        workers: JaxWorkers,
        is_to_stop: Callable[[], bool],
        programs: MutableMapping[str, str],
    ) -> None:
        devices = np.array(jax.devices())
        self._devices, self._here = len(devices), len(jax.local_devices())
        self._first = jax.process_index() * self._here
        mesh = Mesh(devices, (AXIS,))
        self._whole = NamedSharding(mesh, PartitionSpec())
        self._cut = NamedSharding(mesh, PartitionSpec(AXIS))
        self._workers, self._is_to_stop, self._digests = workers, is_to_stop, programs
        self._agreement = Agreement(workers, self._whole, self._cut)
        self._compiled: dict[Any, Callable[..., Any]] = {}
        self.stops = False

        def step(state: Any, batch: Any) -> Any:
            return model.train_step(state, batch)

        self._step = jax.jit(step, donate_argnums=0, out_shardings=self._whole)

    def __call__(self, state: Any, iterator: Iterator[Any]) -> tuple[Any, Any]:
        """Train one batch; return its logs, and the new state.

        Raises:
            StopIteration: there is no batch left.
            ConfigurationError: the workers have read different batches, or have compiled different
                steps.
        """
        batch = next(iterator, None)
        key, stops = _shapes_of(state, batch), self._is_to_stop()
        is_new = key not in self._compiled
        if self._workers.count > 1:
            is_given = not all(map(self._is_of_all, jax.tree.leaves(state)))
            agreed = self._agreement.before_step(batch, stops, is_new, is_given)
            stops, is_new = agreed.stops, agreed.is_new
            if agreed.is_given:
                state = self._agreement.alike(state)
        if batch is None:
            raise StopIteration
        state = jax.tree.map(self._of_all, state)
        shares = self._shared(batch)
        if is_new:
            self._compile(key, state, shares)
        logs, state = self._compiled[key](state, shares)
        self.stops = stops
        return jax.tree.map(of_this_process, logs), state

    def _compile(self, key: Any, state: Any, shares: Any) -> None:
        with _within_step():
            lowered = self._step.lower(state, shares)
        text = CALLBACKS.sub(r"\1", lowered.as_text())
        name = _digest(f"{jax.__version__} {keras.__version__} {self._devices} {key}")
        digest, before = _digest(text), self._digests.get(name)
        refuse_other_programs(self._workers, digest, before)
        self._digests[name] = digest
        self._compiled[key] = lowered.compile()

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

    def _is_of_all(self, value: Any) -> bool:
        return isinstance(value, jax.Array) and value.sharding == self._whole

    def _of_all(self, value: Any) -> Any:
        """Return this process's array as an array of all devices, which all hold the same value."""
        if self._is_of_all(value):
            return value
        here = [jax.device_put(value, one) for one in jax.local_devices()]
        return jax.make_array_from_single_device_arrays(value.shape, self._whole, here)

    @staticmethod
    def _given(mine: np.ndarray, sharding: NamedSharding, shape: tuple[int, ...]) -> jax.Array:
        return jax.make_array_from_process_local_data(sharding, mine, shape)


def is_tracing() -> bool:
    """Tell whether the step of a fit is being traced."""
    return bool(_tracing)


@contextmanager
def _within_step() -> Iterator[None]:
    _tracing.append(True)
    try:
        yield
    finally:
        _tracing.pop()


def of_this_process(value: Any) -> Any:
    """Return this process's copy of an array that all devices hold."""
    return value.addressable_data(0) if isinstance(value, jax.Array) else value


def _shapes_of(state: Any, batch: Any) -> Any:
    leaves, structure = jax.tree.flatten((state, batch))
    return structure, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]
