"""Decides which batches are computed both ways.

These are the first batch, the next one after a change, and the last batch of an epoch, once. The
last batch may have fewer examples, so that the shares are unequal, and it has other examples. If a
share has none, it is not compared.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any

import keras

from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.collectives.replicas import Replicas, ring_of
from cluster_trainer.collectives.workers import workers_of
from cluster_trainer.engine import running
from cluster_trainer.engine.data.sources.source import Source
from cluster_trainer.engine.first_batch.batch import WHAT
from cluster_trainer.engine.first_batch.mode import FirstBatchMode
from cluster_trainer.engine.first_batch.program_parts import across_examples, held_queues
from cluster_trainer.engine.first_batch.program_parts.own_parts import has_own_parts
from cluster_trainer.engine.first_batch.snapshot import Variable
from cluster_trainer.engine.first_batch.switches import positions, switches
from cluster_trainer.engine.functions import runs_eagerly
from cluster_trainer.private import keras_names

TRAINING = "training"
TOLD = "_cluster_trainer_has_told"
UNCOMPARED = "parts that compute over the batch, which could not be compared"
MOST_TIMES = 8
FIRST, AFTER_A_CHANGE = "the first batch{}", "the first batch{} after a change"
LAST = "an epoch's last batch{}"
NOTHING = object()
log = logging.getLogger("trainer")


class Due:
    """Decides whether to compute the next batch of a model's steps both ways.

    Args:
        model: the compiled model.
        name: the steps' name, `training` or `evaluation`.
        otherwise: the treatment of the batch if a call of Keras's does not determine it.
    """

    def __init__(self, model: keras.Model, name: str, otherwise: FirstBatchMode) -> None:
        self._model, self._name, self._otherwise = model, name, otherwise
        self._strategy = model.distribute_strategy
        self._has_own_parts: bool | None = None
        self._batch: Callable[[], Any] = lambda: None
        self._seen: Any = NOTHING
        self._times, self._title = 0, FIRST
        self._has_had_last = False
        self._switches: tuple[int, list[Variable]] = (0, [])

    @property
    def mode(self) -> FirstBatchMode:
        """The treatment of the batch in the running call."""
        return running.current().watched.first_batch or self._otherwise

    @property
    def title(self) -> str:
        """The name of the batch in messages."""
        of = "" if self._name == TRAINING else f" of {self._name}"
        return self._title.format(of)

    @property
    def across_examples(self) -> list[str]:
        """The parts of Keras in the model that compute over the batch's examples, with reasons."""
        return across_examples.found_in(self._model, self._batch())

    def look_at(self, batch: Callable[[], Any]) -> None:
        """Take a function that returns a batch, or its specification, to look at its labels."""
        self._batch = batch

    def is_wanted(self) -> bool:
        """Tell whether any batch may have to be compared; all workers get the same answer."""
        ring = ring_of(self._strategy)
        if self.mode.name == "off" or (isinstance(ring, RenewableRing) and ring.is_rehearsed):
            return False
        if self._has_own_parts is None:
            self._has_own_parts = has_own_parts(self._model) or bool(self.across_examples)
        return self._has_own_parts and Replicas.of(self._strategy).total > 1

    def is_due(self, source: Source | None = None, traced: tuple[int, Any] = (0, None)) -> bool:
        """Tell whether to compare the next batch; all workers call this, and get the same answer.

        Args:
            source: the source of the batch; None: every worker was given the whole batch.
            traced: how often the step was traced, and its trace; None: it runs eagerly.
        """
        if not self.is_wanted():
            return False
        is_new = self._has_changed(*traced)
        # A survivor in a new ring has already compared its first batch; a newcomer has not.
        if not all(workers_of(self._strategy).gather(int(is_new), WHAT)):
            return False
        self._times += 1
        self._title = FIRST if self._times == 1 else AFTER_A_CHANGE
        return self._is_comparable(source)

    def is_last_due(self, source: Source) -> bool:
        """Tell whether to compare an epoch's last batch; all workers call this, as `is_due`."""
        if not self.is_wanted():
            return False
        is_new = self._times > 0 and not self._has_had_last
        if not all(workers_of(self._strategy).gather(int(is_new), WHAT)):
            return False
        self._has_had_last, self._title = True, LAST
        return self._is_comparable(source)

    def _is_comparable(self, source: Source | None) -> bool:
        """Tell whether a batch can be compared; if not, log the reason."""
        why = ""
        if source is not None and source.is_distributed:
            why = "TensorFlow shares the data out"
        elif source is not None and source.calls_users and runs_eagerly(self._model):
            # Both may draw from NumPy. Its generator cannot be restored while the threads read.
            why = "the step runs eagerly, beside threads that read data"
        if why:
            self.give_up()
            self.say_unknown(why)
        return not why

    def _has_changed(self, traces: int, traced: Any) -> bool:
        """Tell whether a step may compute something new since the previous call of this method."""
        if traced is not None and self._switches[0] != traces:
            self._switches = traces, switches(self._model, traced)
        seen, before = (traces, positions(self._switches[1])), self._seen
        self._seen = seen
        return seen != before and self._times < MOST_TIMES

    @property
    def told(self) -> frozenset[str]:
        """The names of differences reported since `compile`; each is reported once."""
        return getattr(keras_names.compile_config(self._model), TOLD, frozenset())

    def note_told(self, names: Iterable[str]) -> None:
        """Note the names of reported differences."""
        if (compiled := keras_names.compile_config(self._model)) is not None:
            setattr(compiled, TOLD, self.told | {*names})

    def give_up(self) -> None:
        """Note that the last batch is not to be compared, because the first was no success."""
        self._has_had_last = True

    def say_unknown(self, why: str) -> None:
        """Log the reason why a batch is not compared; warn if a part is known to differ."""
        parts = [*self.across_examples, *held_queues.found_in(self._model)]
        if not parts or UNCOMPARED in self.told:
            log.info("%s cannot be compared with one device's: %s", self.title, why)
            return
        self.note_told([UNCOMPARED])
        log.warning(
            "%s cannot be compared with one device's: %s. It may differ, because a device sees "
            "only its share of a batch: %s",
            *(self.title, why, "; ".join(parts)),
        )
