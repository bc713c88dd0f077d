"""What the two ways of computing the first batch have come to, in numbers and in words."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster_trainer.engine.first_batch.way import Way, distance, norm

# Relatively; sums in another order differ by some 1e-6, and numbers of 16 bits by some 1e-2.
ROUNDING, ROUNDING_OF_16_BITS = 1e-3, 5e-2
# Of what cancels out in a gradient: what rounding leaves of each replica's part.
LEFT_BY_ROUNDING = 1e-5
SHOWN = 3
READ_ON = "docs/reference/keras.md, The first batch"


@dataclass(frozen=True)
class Outcome:
    """What one way has come to.

    Attributes:
        losses: of the step's logs, by their names; and the script's own metrics.
        state: what the step has assigned otherwise than by an optimizer, by name.
        way: the gradients, and what was drawn.
    """

    losses: dict[str, float]
    state: dict[str, np.ndarray]
    way: Way


@dataclass(frozen=True)
class Both:
    """Both ways of one batch.

    Attributes:
        whole: as one device computes it.
        shared: as all replicas do; state is their mean, weighted with their shares.
        before: the state before either.
        replicas: how many there are.
        things: what the replicas are, such as `workers`.
        tolerance: what rounding explains, relatively.
    """

    whole: Outcome
    shared: Outcome
    before: dict[str, np.ndarray]
    replicas: int
    things: str
    tolerance: float = ROUNDING

    def drawn_apart(self) -> set[str]:
        """Return what was drawn at random that cannot be the same both ways."""
        found = self.whole.way.differing | self.shared.way.differing
        if self.whole.way.shapes != self.shared.way.shapes:
            found = found | {"numbers whose shape does not grow with the batch"}
        return found

    def said(self) -> str:
        """Return what differs, the likely kind first to be looked at; empty: nothing does."""
        losses, gradients, state = self._of_losses(), self._of_gradients(), self._of_state()
        found = [*losses, *gradients, *state]
        if not found:
            return self._said_of_metrics()
        return (
            f"On one device this batch's {'; '.join(found[:SHOWN])}. So {self.replicas} "
            f"{self.things} train otherwise than one device: {self._kind(bool(state))}. "
            f"Read {READ_ON}; TRAINER_FIRST_BATCH=off compares nothing, refuse ends such a fit."
        )

    def _said_of_metrics(self) -> str:
        """Return which of the script's metrics differ where the training does not."""
        found = self._of_numbers([name for name in self._names if "loss" not in name])
        if not found:
            return ""
        return (
            f"On one device this batch's {'; '.join(found[:SHOWN])}. The training is the same, but "
            "not what EarlyStopping and others decide by this: the likely cause is a metric that "
            "is no mean over examples, such as the precision of a batch. Use one of keras.metrics, "
            f"or a Metric whose variables are sums. Read {READ_ON}."
        )

    def _of_losses(self) -> list[str]:
        return self._of_numbers([name for name in self._names if "loss" in name])

    def _of_numbers(self, names: list[str]) -> list[str]:
        pairs = [(name, self.whole.losses[name], self.shared.losses[name]) for name in names]
        return [self._told(name, *two) for name, *two in pairs if not self._is_close(*two)]

    @property
    def _names(self) -> list[str]:
        return [name for name in self.whole.losses if name in self.shared.losses]

    def _of_gradients(self) -> list[str]:
        whole, shared = self.whole.way, self.shared.way
        if list(map(len, whole.gradients)) != list(map(len, shared.gradients)):
            return []
        found = []
        rows = zip(whole.gradients, shared.gradients, shared.sizes, strict=True)
        for one, other, size in rows:
            norms = norm(one), norm(other)
            noise = LEFT_BY_ROUNDING * max(size, *norms)
            if np.isfinite(norms).all() and self._is_far(distance(one, other), *norms, noise=noise):
                found.append(self._told("norm of gradients", *norms))
        return found[:1]

    def _of_state(self) -> list[str]:
        found = []
        for name, before in self.before.items():
            whole, shared = self.whole.state[name], self.shared.state[name]
            changes = _length(whole - before), _length(shared - before)
            noise = ROUNDING * ROUNDING * _length(before)
            if self._is_far(_length(whole - shared), *changes, noise=noise):
                found.append(self._told(f"change of {name!r} (its norm)", *changes))
        return found

    def _is_close(self, one: float, other: float) -> bool:
        if not np.isfinite([one, other]).all():  # such as an overflow of float16
            return True
        return abs(one - other) <= self.tolerance * max(abs(one), abs(other), ROUNDING)

    def _is_far(self, apart: float, *norms: float, noise: float) -> bool:
        return bool(np.isfinite(apart)) and apart > self.tolerance * max(norms) + noise

    def _told(self, name: str, whole: float, shared: float) -> str:
        things = f"{self.replicas} {self.things}"
        if f"{whole:.4g}" == f"{shared:.4g}":
            return f"{name} is {whole:.4g}, and on {things} the same, of other parts"
        return f"{name} is {whole:.4g}, on {things} {shared:.4g}"

    def _kind(self, has_other_state: bool) -> str:  # noqa: FBT001
        ratios = self._ratios()
        if any(np.isclose(one * self.replicas, 1.0, rtol=0.05) for one in ratios):
            return (
                "the likely cause is a sum over the batch, or a sum divided by the size of the "
                "global batch, where a mean over what the step is given is meant"
            )
        if has_other_state and not self._of_losses() and not self._of_gradients():
            return (
                "the likely cause is state that is no mean over the batch's examples, such as a "
                "queue of them or a sum"
            )
        return (
            "the likely cause is a loss that is no mean over examples: a mean over what a mask "
            "leaves, or a comparison of the batch's examples with each other (contrastive "
            "losses, triplets, a contraction over the batch)"
        )

    def _ratios(self) -> list[float]:
        pairs = [(self.whole.losses[name], self.shared.losses[name]) for name in self._names]
        gradients = zip(self.whole.way.gradients, self.shared.way.gradients, strict=False)
        pairs += [(norm(one), norm(other)) for one, other in gradients]
        return [other / one for one, other in pairs if one]


def _length(values: Any) -> float:
    return float(np.linalg.norm(np.asarray(values, np.float64).reshape(-1)))
