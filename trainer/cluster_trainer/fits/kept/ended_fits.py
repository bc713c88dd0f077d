"""Decides which of a script's finished fits keep their weights on the disk.

A restarted script calls all of its fits again. A finished fit returns its earlier History, and its
weights are restored, because the script may use them. If a later fit trains the same variables,
these are in its own checkpoints. Then the earlier fit's weights are needed only if the script has
read them in between, on any worker, because it will read them again. So of such a chain of fits,

- the newest keeps all of its weights;
- an earlier one keeps the values that were read, usually the weights without the optimizer's state;
- the others keep only their History.

A script that reads removed weights, for example after an edit, is refused.
"""

import gc
import json
import logging
import weakref
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import tensorflow as tf

from cluster_trainer.checkpoints.store import Store
from cluster_trainer.checkpoints.without_weights import lighten
from cluster_trainer.collectives.workers import Workers
from cluster_trainer.engine import variable_reads
from cluster_trainer.engine.compared_facts import of_all
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.process.exit_code import judge, leave_script, tell

FEW = 256
"""Variables with at most this many numbers always stay; see without_weights.py."""
READ = "fit (reads of ended fits)"
log = logging.getLogger("trainer")


@dataclass
class EndedFit:
    """A finished fit.

    Attributes:
        name: its name in the log.
        store: its checkpoints.
        variables: weak references to its large variables, by `id`.
        places: the position of each variable in a checkpoint, by `id`.
        read: the positions of variables that the script has read since, on any worker.
    """

    name: str
    store: Store
    variables: dict[int, weakref.ref[Any]]
    places: dict[int, int]
    read: set[int] = field(default_factory=set)

    def alive(self) -> set[int]:
        """Return the `id`s of the variables that still exist."""
        return {key for key, one in self.variables.items() if one() is not None}


class EndedFits:
    """The finished fits of this process whose weights are on this worker's disk, in order."""

    def __init__(self) -> None:
        self._fits: dict[str, EndedFit] = {}
        self._gone: dict[int, tuple[weakref.ref[Any], str]] = {}
        self._read: dict[int, weakref.ref[Any]] = {}
        self._num_workers, self._has_told = 1, {True: False, False: False}

    @contextmanager
    def fit(self, num_workers: int) -> Iterator[None]:
        """Ignore reads within the context, because a fit makes them, and not the script."""
        self._num_workers = num_workers
        variable_reads.stop_listening()
        try:
            yield
        finally:
            if self._fits or self._gone:
                variable_reads.listen(self._note_read, self._note_assigned)

    def note(self, name: str, store: Store, variables: Iterable[Any]) -> None:
        """Note that a fit has finished, and that its checkpoint holds these variables' values."""
        given = list(variables)
        large = _large(given)
        places = {id(one): place for place, one in enumerate(given)}
        read = {places[key] for key in large if self._was_read(key)}
        self._fits[name] = EndedFit(name, store, large, places, read)

    def note_values(self, name: str, variables: list[Any], gone: Collection[int]) -> None:
        """Note that variables have a fit's values, except at the positions in `gone`.

        Args:
            name: the fit's name.
            variables: the variables in the order of its checkpoint.
            gone: the positions of variables whose values were removed from the disk.
        """
        if gone:
            self._fits.pop(name, None)
        for place, one in enumerate(variables):
            self._gone.pop(id(one), None)
            if place in gone:
                self._gone[id(one)] = weakref.ref(one), name

    def are_gone(self, variables: Iterable[Any]) -> bool:
        """Tell whether the values of some of these variables were removed."""
        return any(map(self._is_gone, variables))

    def refuse_gone(self, variables: Iterable[Any]) -> None:
        """Refuse to train a model whose weights were removed.

        Raises:
            ConfigurationError: the value of one of its variables was removed.
        """
        for one in variables:
            if self._is_gone(one):
                raise _gone(one, self._gone[id(one)][1])

    def outdated_by(self, name: str, variables: Iterable[Any], workers: Workers) -> list[EndedFit]:
        """Return the fits whose weights are obsolete once the fit `name` has a checkpoint.

        All workers call this, so that the same fits keep the same weights on all of them.
        """
        found = {one.name: one for one in self._outdated_here(name, variables)}
        mine = {of: json.dumps(sorted(one.read)) for of, one in found.items()}
        for theirs in of_all(workers, mine, READ):
            found = {of: one for of, one in found.items() if of in theirs}
            for of, one in found.items():
                one.read.update(json.loads(theirs[of]))
        return [*found.values()]

    def _outdated_here(self, name: str, variables: Iterable[Any]) -> list[EndedFit]:
        trained = set(_large(variables))
        others = [one for one in self._fits.values() if one.name != name]
        related = [one for one in others if one.alive() & trained]
        if any(one.alive() - trained for one in related):
            gc.collect()  # an optimizer of an earlier `compile` is part of a reference cycle
        return [one for one in related if not one.alive() - trained]

    def remove_weights(self, fits: Iterable[EndedFit], of: str) -> None:
        """Remove the weights of some fits, except those that were read."""
        for one in fits:
            if self._fits.pop(one.name, None) is None:
                continue
            try:
                lighten(one.store, one.read)
            except (OSError, ValueError) as error:
                log.warning("%s: its weights could not be removed: %s", one.name, error)
                continue
            self._tell(one, of)

    def _tell(self, fit: EndedFit, of: str) -> None:
        """Log what happened to a fit's weights, once for each kind."""
        is_read = bool(fit.read)
        tell_it = log.debug if self._has_told[is_read] else log.info
        self._has_told[is_read] = True
        if is_read:
            tell_it(
                "%s: %.1f MB of its weights stay on the disk, because the script uses them "
                "before %s. The same applies to later fits",
                *(fit.name, fit.store.newest_bytes() / 1e6, of),
            )
            return
        tell_it(
            "%s: its weights are removed from the disk, because %s trains the same model and "
            "has a checkpoint; its History stays. The same applies to later fits",
            *(fit.name, of),
        )

    def _note_read(self, variable: Any) -> None:
        if self._is_gone(variable):
            error = _gone(variable, self._gone[id(variable)][1])
            variable_reads.stop_listening()
            tell(error, self._num_workers)
            leave_script(*judge(error, self._num_workers))
        key = id(variable)
        for one in self._fits.values():
            if key in one.variables:
                one.read.add(one.places[key])
                if not tf.executing_eagerly():  # later calls of a traced function are not observed
                    self._read[key] = one.variables[key]

    def _note_assigned(self, variable: Any) -> None:
        self._gone.pop(id(variable), None)

    def _is_gone(self, variable: Any) -> bool:
        known = self._gone.get(id(variable))
        return known is not None and known[0]() is variable

    def _was_read(self, key: int) -> bool:
        known = self._read.get(key)
        return known is not None and known() is not None


def _large(variables: Iterable[Any]) -> dict[int, weakref.ref[Any]]:
    return {id(one): weakref.ref(one) for one in variables if prod(one.shape) > FEW}


def _gone(variable: Any, name: str) -> ConfigurationError:
    accepted = "a script that calls the next fit of the same model without using them, as before"
    advice = (
        "They were removed when a later fit of the same model had a checkpoint, because the "
        "script had not used them. To start over, set TRAINER_RESUME=never or another "
        "TRAINER_RUN_DIR."
    )
    return ConfigurationError(
        [Problem(f"the weights that {name} ended with", variable.path, accepted, advice)]
    )
