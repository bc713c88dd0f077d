"""Gives all workers of a ring the chief's values at the beginning, and whenever values differ.

A TensorFlow strategy gives each new variable the chief's first value. In a script without a
strategy, each worker creates its variables itself, possibly from other seeds.
"""

import json
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.collectives.replicas import ring_of
from cluster_trainer.collectives.workers import WorkersOfRing
from cluster_trainer.engine import running
from cluster_trainer.engine.compared_facts import Facts, of_all
from cluster_trainer.engine.replicas import of_model, statistics
from cluster_trainer.engine.same_values import diverged, other_variables, values
from cluster_trainer.private import keras_names
from cluster_trainer.same_code import library_settings, script_text
from cluster_trainer.settings.task import names_of

log = logging.getLogger("trainer")


def make(model: keras.Model, more: Iterable[Any] = (), *, may_differ: bool = False) -> None:
    """Give a model's and its optimizer's variables the chief's values; all workers call this.

    Args:
        model: a model, some of whose variables may not exist yet.
        more: other variables, which may include the model's.
        may_differ: whether to accept that workers have different variables, because some variables
            do not exist on all workers yet. In that case the model's own variables get the chief's
            values, unless these differ, too.

    Raises:
        ConfigurationError: the workers' models have different variables. If only newcomers' models
            differ, it is raised on newcomers alone (newcomers.py).
        PeerUnfit: only newcomers' models differ, and this worker is no newcomer. The others
            continue without the newcomers.
    """
    ring = ring_of(model.distribute_strategy)
    if ring is None:
        return
    variables = _with_optimizers(model, more)
    has_all = _take_from_chief(model, variables, ring, may_differ=may_differ)
    if has_all or _take_from_chief(model, model.variables, ring, may_differ=True):
        of_model.of(model).was_alike = True
    renew_constants(model)


def keep(model: keras.Model, variables: Iterable[Any], when: str) -> None:
    """Give variables the chief's values again if theirs have become different, and warn.

    All workers of the model's ring call this. Without a ring, it is a no-op. Statistics, which are
    each worker's own, are averaged first.

    Args:
        model: a model.
        variables: variables of the model and its optimizers, in the same order on all workers.
        when: the moment for the warning, such as "after an epoch".
    """
    ring = ring_of(model.distribute_strategy)
    if ring is None or ring.size == 1:
        return
    statistics.average(model, model.distribute_strategy)
    if found := diverged.say(_uncounted(model, variables), ring, when):
        values.give(found, ring, "fit (the chief's values)")
        renew_constants(model)


def _uncounted(model: keras.Model, variables: Iterable[Any]) -> list[Any]:
    """Return variables except those of metrics, in which each worker counts its own share."""
    counted = {id(one) for one in statistics.of_metrics(model)}
    return [one for one in variables if id(one) not in counted]


def renew_constants(model: keras.Model) -> bool:
    """Update layers that compute with copies of their variables; tell whether a copy was stale.

    Normalization is such a layer. It computes with constants, which Keras updates only in `adapt`
    and `load_weights`.
    """
    has_changed = False
    for layer in keras_names.layers_within(model):
        if isinstance(layer, keras.layers.Normalization) and hasattr(layer, "adapt_mean"):
            before = layer.mean, layer.variance
            layer.finalize_state()
            after = layer.mean, layer.variance
            has_changed |= not all(map(np.array_equal, before, after))
    return has_changed


def _with_optimizers(model: keras.Model, more: Iterable[Any] = ()) -> list[Any]:
    variables = [*model.variables, *more]
    if (optimizer := getattr(model, "optimizer", None)) is not None:  # it may not be compiled
        variables += optimizer.variables
    return list({id(one): one for one in variables}.values())


def make_once(model: keras.Model, *, may_differ: bool = False) -> None:
    """Call `make` once in each call of Keras's, or once in all of a user's own loops.

    A `fit` may validate, and may have callbacks with their own models. When it begins again after a
    lost worker, all these models get the chief's values again, because a newcomer needs them.
    """
    call = running.current()
    if not running.is_announced():
        make_for_loop(model, may_differ=may_differ)
        return
    known = call.alike
    if model in known or model in (call.asked or ()):
        return
    if call.is_fit and len(known):  # a callback's model: the fit's own is the first
        if not _make_other(model):
            if call.asked is not None:
                call.asked.add(model)
            return
    else:
        make(model, may_differ=may_differ)
    known.add(model)


def make_for_loop(model: keras.Model, *, may_differ: bool = False) -> None:
    """Give a model's variables the chief's values when a user's own loop first uses the model."""
    kept = of_model.of(model)
    if not kept.is_alike:
        make(model, may_differ=may_differ)
    kept.is_alike = True


def make_variables(variables: Sequence[Any]) -> None:
    """Give variables of any models the chief's values; all workers call it.

    Raises:
        ConfigurationError: the workers' variables have different types or shapes; see `make`.
        PeerUnfit: see `make`.
    """
    if ring := ring_of(tf.distribute.get_strategy()):
        _take_from_chief(None, variables, ring)


def digest_of(variables: Iterable[Any]) -> str:
    """Return a digest of the values of variables, as 32 hexadecimal digits."""
    return values.digest_of(variables).hex()


def note(model: keras.Model) -> None:
    """Mark a fit's model as having the chief's values, which it gets in another way."""
    running.current().alike.add(model)


def _make_other(model: keras.Model) -> bool:
    """Give a callback's model the chief's values; tell whether all workers had all variables.

    A survivor may have built the model, its statistics and its optimizer before the fit began
    again, and a newcomer has not. So statistics are averaged here, once all workers are known to
    have them, and not at the beginning of the call. If only some workers have built the optimizer,
    the next call compares again.
    """
    ring = ring_of(model.distribute_strategy)
    if ring is None:
        return True
    own = [*model.variables]
    has_all = _take_from_chief(model, _with_optimizers(model), ring, may_differ=True)
    if not has_all:
        _take_from_chief(model, own, ring)
    renew_constants(model)
    return has_all


def _take_from_chief(
    model: keras.Model | None,
    variables: Sequence[Any],
    ring: RenewableRing,
    *,
    may_differ: bool = False,
) -> bool:
    """Give variables the chief's values; tell whether all workers have the same variables.

    Args:
        model: the model whose statistics are averaged first, if all workers have the same
            variables; None: there is none.
        variables: the variables of the model, and perhaps others.
        ring: the workers' ring.
        may_differ: whether to do nothing if the workers have different variables. If False, that is
            an error; see `make`.
    """
    # Not by name: Keras numbers layers, and a worker may have created other layers before.
    forms = [f"{tf.as_dtype(one.dtype).name} {list(one.shape)}" for one in variables]
    call = running.current().name
    digest = values.digest(form.encode() for form in forms)
    code = script_text.code(library_settings.found())
    of_code = values.digest([json.dumps(code, sort_keys=True).encode()])
    answers = ring.all_gather(digest + of_code, what=f"{call} (a model's variables)")
    digests = [one[: len(digest)] for one in answers]
    if len({one[len(digest) :] for one in answers}) > 1:
        _say_other_code(code, ring, call)
    if len({*digests}) > 1:
        if may_differ:
            return False
        other_variables.refuse(variables, forms, ring, call, digests)
    if model is not None:
        statistics.average(model, model.distribute_strategy)
    what = f"{call} (a model's values)"
    digest = values.digest_of(variables)
    was_alike = model is not None and of_model.of(model).was_alike
    answers = ring.all_gather(digest + bytes([was_alike]), what=what)
    if len({one[:-1] for one in answers}) == 1:  # for example after a `fit`
        return True
    if model is not None and all(one[-1] for one in answers):
        # Other variables, such as Keras's global seed, may be new on each worker.
        own = {id(one) for one in _with_optimizers(model)}
        known = [one for one in variables if id(one) in own]
        diverged.say(_uncounted(model, known), ring, f"before {call}")
    values.give(variables, ring, what)
    log.debug("%d variables begin with the chief's values", len(variables))
    return True


def _say_other_code(code: Facts, ring: RenewableRing, call: str) -> None:
    """Warn that the workers' script files or packages differ; all workers call this."""
    workers = WorkersOfRing(ring)
    everyone = of_all(workers, code, f"{call} (the workers' code)")
    script_text.say_differences(everyone, names_of(workers.members))
