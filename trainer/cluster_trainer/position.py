"""Where a run is: what a checkpoint keeps besides the variables."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from cluster_trainer.loop import Totals
from cluster_trainer.report import EpochMetrics


@dataclass(frozen=True)
class Partial:
    """What the epoch in progress has brought so far, on all replicas together."""

    totals: Totals = field(default_factory=lambda: Totals(0.0, 0, 0))
    seconds: float = 0.0

    def plus(self, totals: Totals, seconds: float) -> "Partial":
        """Return this with more added."""
        return Partial(self.totals + totals, self.seconds + seconds)


@dataclass(frozen=True)
class Position:
    """Where a run is.

    Attributes:
        step: training steps done, over all epochs.
        epochs: the metrics of the epochs that were trained and evaluated.
        partial: of the epoch after these.
    """

    step: int = 0
    epochs: tuple[EpochMetrics, ...] = ()
    partial: Partial = field(default_factory=Partial)

    def as_json(self) -> dict[str, Any]:
        """Return all but the step as JSON knows it."""
        return {
            "epochs": [asdict(metrics) for metrics in self.epochs],
            "partial": asdict(self.partial),
        }

    @classmethod
    def from_json(cls, step: int, progress: Mapping[str, Any]) -> "Position":
        """Read what `as_json` returned."""
        partial = progress["partial"]
        return cls(
            step=step,
            epochs=tuple(EpochMetrics(**metrics) for metrics in progress["epochs"]),
            partial=Partial(Totals(**partial["totals"]), partial["seconds"]),
        )
