"""Compares the results of the two ways of computing the first batch, and describes differences."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from cluster_trainer.engine.first_batch.way import Way, distance, norm

# Relative differences: reordered sums differ by about 1e-6, and 16-bit numbers by about 1e-2.
ROUNDING, ROUNDING_OF_16_BITS = 1e-3, 5e-2
# Values may cancel out in a mean over replicas, so that only the rounding of their parts remains.
LEFT_BY_ROUNDING = 1e-5
SHOWN = 3
GRADIENTS = "norm of gradients"
READ_ON = "docs/reference/keras.md, The first batch"
MORE = f"Read {READ_ON}; TRAINER_FIRST_BATCH=off compares nothing, refuse ends such a call."
A_SUM = (
    "a sum over the batch, or a sum divided by the size of the global batch, instead of a mean "
    "over the step's examples"
)
A_STATE = "state that is not a mean over the batch's examples, such as a queue of them or a sum"
NO_MEAN = (
    "a loss that is not a mean over examples: a mean over the elements that a mask keeps, or a "
    "comparison of the batch's examples with each other (contrastive losses, triplets, a "
    "contraction over the batch)"
)

NO_SUM = (
    "a number that is not a mean over examples, such as a batch's precision, sum, maximum or norm"
)


class Difference(NamedTuple):
    """A difference between one device and all replicas."""

    name: str
    whole: float
    shared: float


@dataclass(frozen=True)
class Outcome:
    """The results of one way.

    Attributes:
        logs: the step's logs, each as one number, by name.
        state: the values that the step has assigned without an optimizer, by name.
        way: the way, with the gradients that the optimizers got.
        sizes: the mean norm of the state's change on a single replica, by name.
    """

    logs: dict[str, float]
    state: dict[str, np.ndarray]
    way: Way
    sizes: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Both:
    """Both ways of one batch.

    Attributes:
        whole: the results of one device.
        shared: the results of all replicas; state is their mean, weighted by their shares.
        before: the initial values of all state that has changed, by name.
        replicas: the number of replicas.
        things: a word for the replicas, such as `workers`.
        tolerance: the largest relative difference that rounding explains.
        trains: whether the step trains, and does not evaluate.
        told: the names of differences that were already reported.
        parts: the parts of Keras that compute over the batch's examples, with reasons.
    """

    whole: Outcome
    shared: Outcome
    before: dict[str, np.ndarray]
    replicas: int
    things: str
    tolerance: float = ROUNDING
    trains: bool = True
    told: frozenset[str] = frozenset()
    parts: tuple[str, ...] = ()

    def names(self) -> list[str]:
        """Return the names of the differences that `said` shows; a later batch may show others."""
        return [one.name for one in self._shown()]

    def loss_of_nan(self) -> Difference | None:
        """Return a training loss that is NaN on the replicas, and finite on one device."""
        losses = [one for one in self._of_logs() if "loss" in one.name and np.isnan(one.shared)]
        return losses[0] if losses and self.trains else None

    def said(self) -> str:
        """Return the differences, and their likely cause; "" if there are none."""
        trained = self._of_training()
        if not (trained or self._of_state()):
            return self._said_of_metrics()
        shown = "; ".join(map(self._told, self._shown()))
        so = _not_like_one(self.replicas, self.things, trains=self.trains)
        return (
            f"On one device this batch's {shown}. {so}. The likely cause is "
            f"{self._cause(trained)}. {MORE}"
        )

    def _shown(self) -> list[Difference]:
        """Return the first differences; differences of metrics only if there are no others."""
        return ([*self._of_training(), *self._of_state()] or self._of_metrics())[:SHOWN]

    def _said_of_metrics(self) -> str:
        """Return a text about differing metrics, for a batch whose losses and training agree."""
        if not self._of_metrics():
            return ""
        shown = "; ".join(map(self._told, self._shown()))
        so = "The training is the same, but callbacks" if self.trains else "Callbacks"
        return (
            f"On one device this batch's {shown}. {so} such as EarlyStopping may "
            f"decide differently. The likely cause is {self._of_keras() or NO_SUM}. Use a Metric "
            f"whose variables are sums over examples. Read {READ_ON}."
        )

    def _of_keras(self) -> str:
        """Return the parts of Keras that are a likely cause; "" if there are none."""
        return f"a part of Keras ({'; '.join(self.parts)})" if self.parts else ""

    def _of_training(self) -> list[Difference]:
        losses = [one for one in self._of_logs() if "loss" in one.name]
        return [*losses, *self._of_gradients()]

    def _of_metrics(self) -> list[Difference]:
        return [one for one in self._of_logs() if "loss" not in one.name]

    def _cause(self, trained: list[Difference]) -> str:
        if not trained:
            return A_STATE
        ratios = [one.shared / one.whole for one in trained if one.whole]
        is_sum = any(np.isclose(one * self.replicas, 1.0, rtol=0.05) for one in ratios)
        return A_SUM if is_sum else self._of_keras() or NO_MEAN

    def _of_logs(self) -> list[Difference]:
        return [
            Difference(name, whole, self.shared.logs[name])
            for name, whole in self.whole.logs.items()
            if name not in self.told
            and name in self.shared.logs
            and not self._is_close(whole, self.shared.logs[name])
        ]

    def _of_gradients(self) -> list[Difference]:
        whole, shared = self.whole.way, self.shared.way
        are_alike = list(map(len, whole.gradients)) == list(map(len, shared.gradients))
        if GRADIENTS in self.told or not are_alike:
            return []
        rows = zip(whole.gradients, shared.gradients, shared.sizes, strict=True)
        for one, other, size in rows:
            norms = norm(one), norm(other)
            noise = LEFT_BY_ROUNDING * max(size, *norms)
            if np.isfinite(norms).all() and self._is_far(distance(one, other), *norms, noise=noise):
                return [Difference(GRADIENTS, *norms)]
        return []

    def _of_state(self) -> list[Difference]:
        found = []
        for name, before in self.before.items():
            whole, shared = self.whole.state[name], self.shared.state[name]
            changes = _length(whole - before), _length(shared - before)
            noise = ROUNDING * ROUNDING * _length(before)
            noise += LEFT_BY_ROUNDING * self.shared.sizes.get(name, 0.0)
            told = f"change of {name!r} (its norm)"
            if told not in self.told and self._is_far(
                _length(whole - shared), *changes, noise=noise
            ):
                found.append(Difference(told, *changes))
        return found

    def _is_close(self, whole: float, shared: float) -> bool:
        if np.isfinite(whole) and np.isnan(shared):  # such as a mean over no element
            return False
        if not np.isfinite([whole, shared]).all():  # such as an overflow of float16
            return True
        return abs(whole - shared) <= self.tolerance * max(abs(whole), abs(shared), ROUNDING)

    def _is_far(self, apart: float, *norms: float, noise: float) -> bool:
        return bool(np.isfinite(apart)) and apart > self.tolerance * max(norms) + noise

    def _told(self, one: Difference) -> str:
        whole, shared = f"{one.whole:.4g}", f"{one.shared:.4g}"
        things = f"{self.replicas} {self.things}"
        if whole == shared:
            return f"{one.name} is {whole}, and on {things} the same, but made of other parts"
        return f"{one.name} is {whole}, on {things} {shared}"


def said_of_branches(replicas: int, things: str, *, trains: bool) -> str:
    """Return a text for replicas that compute different sums from each other."""
    return (
        f"The step computes different values on {replicas} {things}, for example in branches of "
        "`tf.cond(tf.reduce_sum(x) > 0, …)`: each decides by its share of the batch, and one "
        f"device by the whole batch. {_not_like_one(replicas, things, trains=trains)}. Use a "
        "condition that does not depend on the batch, or compute both branches and choose with "
        f"`tf.where`. {MORE}"
    )


def _not_like_one(replicas: int, things: str, *, trains: bool) -> str:
    do = "train" if trains else "evaluate"
    return f"So {replicas} {things} do not {do} like one device"


def _length(values: Any) -> float:
    return float(np.linalg.norm(np.asarray(values, np.float64).reshape(-1)))
