"""Makes the engine's permanent replacements of parts of Keras and TensorFlow.

Other modules of the engine replace parts for a moment only:

- building/building.py replaces `_maybe_build` while a model is built;
- building/on_zeros.py replaces `_direct_assign` while a model is called on zeros;
- first_batch/ replaces random functions and sums over replicas while it compares a batch.

Outside of the engine, fits/shared/written_files.py wraps `keras.Model.export` and `h5py.File`.
"""

import logging
import warnings
from collections.abc import Callable
from functools import cache, partial, wraps
from typing import Any

import keras
import tensorflow as tf

from cluster_trainer.collectives import local_devices
from cluster_trainer.collectives.replicas import ring_of
from cluster_trainer.engine import progress_bar, running, variable_reads
from cluster_trainer.engine.building import building
from cluster_trainer.engine.calls import announced, others, predicting
from cluster_trainer.engine.calls.in_step import average, keeps_in_step
from cluster_trainer.engine.data import random_access
from cluster_trainer.engine.epoch_iterator import EpochIterator
from cluster_trainer.engine.first_batch.mode import FirstBatchMode
from cluster_trainer.engine.logs import StepLogs
from cluster_trainer.engine.predictions import Predictions
from cluster_trainer.engine.replicas import (
    batch_norm,
    losses,
    of_model,
    random_layers,
    step_context,
    traces,
)
from cluster_trainer.engine.replicas.metrics import left_totals, noted_results
from cluster_trainer.engine.replicas.optimizers import methods, updates
from cluster_trainer.engine.replicas.state import queues, untracked
from cluster_trainer.engine.same_values import alike
from cluster_trainer.engine.steps import Steps
from cluster_trainer.private import keras_names, tensorflow_names
from cluster_trainer.private.replaceable import Replaceable

log = logging.getLogger("trainer")
KerasTrainer = keras_names.TensorFlowTrainer
ON_BATCH = ("train_on_batch", "test_on_batch", "predict_on_batch")
CALLS = ("fit", "evaluate", "predict", *ON_BATCH)
KerasIterator = keras_names.TFEpochIterator


def is_installed() -> bool:
    """Tell whether the replacements are installed in this process."""
    return keras_names.EPOCH_ITERATOR.own is _iterator


def install(
    around: announced.AroundFit,
    around_other: others.AroundOther,
    begins: Callable[[keras.Model, str], None],
    first_batch: FirstBatchMode,
    *,
    plain_bars: bool = False,
) -> None:
    """Install the replacements; call it once in a process.

    Args:
        around: runs each `fit`.
        around_other: runs each other call, unless it is within a `fit`.
        begins: is called before each call, with its model and its name.
        first_batch: the treatment of first batches, unless a `fit` determines it.
        plain_bars: whether progress bars print a single line at their end.
    """
    # The patched Keras (patches/) warns of this, but the engine shuffles with the chief's seed.
    warnings.filterwarnings("ignore", "No random seed is set, so each worker shuffles the arrays")
    _replace_in_steps()
    _replace_of_optimizers()
    keras_names.GET_DATA_ADAPTER.wrap(random_access.accepting)  # sources of single examples
    keras_names.VALUE.wrap(variable_reads.telling_value)
    keras_names.ASSIGN.wrap(variable_reads.telling_assign)
    keras_names.UPDATE_PROGBAR.wrap(progress_bar.counting)
    if plain_bars:
        Replaceable(keras.utils.Progbar, "__init__").wrap(progress_bar.plain)
    _replace_of_models(around, around_other, first_batch)
    for name in CALLS:
        Replaceable(KerasTrainer, name).wrap(partial(_on_all, begins=begins))


def _replace_in_steps() -> None:
    """Replace functions that would treat a replica's share as the whole batch, within a step.

    A loss becomes the whole batch's, a queue gets the rows of all replicas, and each replica draws
    from its own seeds.
    """
    is_shared = step_context.is_shared
    tensorflow_names.NUM_REPLICAS_IN_SYNC.wrap(step_context.seeing_one_replica)
    tensorflow_names.MAKE_FUNCTION_CONTEXT.wrap(traces.keyed_by_step)
    keras_names.REDUCE_VALUES.put_if(losses.reduced, is_shared)
    keras_names.APPLY_MASK.put_if(losses.masked, is_shared)
    keras_names.HINGE_LABELS.put_if(losses.hinge_labels, is_shared)
    Replaceable(tf.GradientTape, "gradient").put_if(losses.gradient_of_batch, is_shared)
    keras_names.AGGREGATE_ADDITIONAL_LOSS.put_if(losses.aggregated, is_shared)
    tensorflow_names.ASSIGN.put_if(queues.assigned, queues.is_traced)
    tensorflow_names.ASSIGN_OF_RESOURCE.put_if(queues.assigned, queues.is_traced)
    for assign in tensorflow_names.ASSIGNMENTS:
        assign.wrap(untracked.noting)
    Replaceable(keras.metrics.Mean, "update_state").put(losses.update_mean)
    Replaceable(keras.Metric, "__init__").wrap(noted_results.with_wrapped_class)
    keras_names.COMPUTE_MOMENTS_SYNC.put_if(batch_norm.moments_of_all, is_shared)
    keras_names.MOMENTS.put_if(batch_norm.moments_of_layer, is_shared)
    Replaceable(keras.random.SeedGenerator, "next").put(random_layers.next_apart)


def _replace_of_optimizers() -> None:
    """Give Keras's optimizers gradients that are summed over replicas.

    Each replica then updates its own copies of the variables.
    """
    base, scaling = keras_names.BaseOptimizer, keras.optimizers.LossScaleOptimizer
    for kind in (base, scaling, keras.optimizers.MultiOptimizer):
        if "scale_loss" in vars(kind):
            Replaceable(kind, "scale_loss").wrap(methods.weighting)
    Replaceable(base, "__init__").wrap(methods.with_wrapped_class)
    Replaceable(base, "__setattr__").wrap(methods.with_wrapped_attribute)
    is_reduced = updates.is_reduced
    keras_names.UPDATE_STEP.put_if(updates.update_own_copies, is_reduced)
    keras_names.APPLY_WEIGHT_DECAY.put_if(updates.decay_own_copies, is_reduced)
    keras_names.INCREMENT_ACCUMULATORS.put_if(updates.accumulate_in_own, is_reduced)
    keras_names.OVERWRITE_WITH_AVERAGE.put_if(updates.overwrite_own, is_reduced)
    keras_names.LOSS_SCALE_APPLY.put_if(keras_names.LOSS_SCALE_COMMON_APPLY.own, is_reduced)
    keras_names.DIRECT_ASSIGN.put(updates.assign)


def _replace_of_models(
    around: announced.AroundFit, around_other: others.AroundOther, first_batch: FirstBatchMode
) -> None:
    """Replace the functions with which Keras's models train, evaluate and predict."""
    keras_names.EPOCH_ITERATOR.put(_iterator)
    KerasTrainer.make_train_function = _making(
        "train_function", lambda it: Steps(it, it.train_step, "training", first_batch)
    )
    KerasTrainer.make_test_function = _making(
        "test_function", lambda it: Steps(it, it.test_step, "evaluation", first_batch)
    )
    KerasTrainer.make_predict_function = _making("predict_function", Predictions)
    keras_names.MAYBE_SYMBOLIC_BUILD.wrap(_building)
    keras_names.COMPILE.wrap(of_model.noting_jit)
    keras_names.METRICS_RESULT_OR_LOGS.wrap(_of_all_replicas)
    KerasTrainer.fit = announced.announced_fit(KerasTrainer.fit, around)
    KerasTrainer.evaluate = announced.announced_evaluate(KerasTrainer.evaluate)
    KerasTrainer.predict = predicting.batch_by_batch(KerasTrainer.predict)
    for name in ON_BATCH:
        Replaceable(KerasTrainer, name).wrap(others.on_batch)
    for name in ("evaluate", "predict", *ON_BATCH):
        Replaceable(KerasTrainer, name).wrap(partial(others.run_by, around=around_other))
    tensorflow_names.INITIALIZE_STRATEGY.wrap(local_devices.withdrawing)


def _on_all(
    method: Callable[..., Any], begins: Callable[[keras.Model, str], None]
) -> Callable[..., Any]:
    """Return a call that computes on all devices of the machine, if there are several."""

    @wraps(method)
    def run(self: Any, *arguments: Any, **keywords: Any) -> Any:
        begins(self, method.__name__)
        strategy = local_devices.strategy() if local_devices.are_wanted() else None
        if strategy is None:
            return method(self, *arguments, **keywords)
        from cluster_trainer.engine.calls.all_devices import on_all  # noqa: PLC0415

        return on_all(method, strategy, self, arguments, keywords)

    return run


@cache
def install_of_devices() -> None:
    """Install the replacements for a plain script on several devices, once these are known."""
    from cluster_trainer.engine.calls import all_devices  # noqa: PLC0415  few scripts need it

    keras_names.let_optimizers_see(all_devices.see_strategy)
    for assign in tensorflow_names.ASSIGNMENTS:
        assign.wrap(all_devices.telling_of_raw)


def _iterator(*arguments: Any, distribute_strategy: tf.distribute.Strategy, **keywords: Any) -> Any:
    is_ours = keeps_in_step(distribute_strategy) and not running.current().has_own_functions
    keywords["distribute_strategy"] = distribute_strategy
    if is_ours:
        return EpochIterator(*arguments, **keywords).begun()
    return KerasIterator(*arguments, **keywords)


def _making(name: str, make: Callable[[Any], Any]) -> Callable[..., Any]:
    keras_own = getattr(KerasTrainer, f"make_{name}")

    @wraps(keras_own)
    def make_function(self: Any, force: bool = False) -> Any:  # noqa: FBT001, FBT002  Keras's signature
        if not keeps_in_step(self.distribute_strategy):
            return keras_own(self, force)
        made = getattr(self, name)
        if force or made is None or _is_of_others(made, self.distribute_strategy):
            setattr(self, name, make(self))
        return getattr(self, name)

    return make_function


def _is_of_others(made: Any, strategy: tf.distribute.Strategy) -> bool:
    """Tell whether a function was made for all devices and is needed for one, or the reverse."""
    if not isinstance(made, (Steps, Predictions)):
        return False
    return local_devices.is_of_all(made.strategy) != local_devices.is_of_all(strategy)


def _building(keras_own: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(keras_own)
    def build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        """Build the unbuilt parts of a model, for a replica's batch; see building.py."""
        if building.is_alone(self):  # the first step builds it
            return
        if isinstance(iterator, KerasIterator) or not keeps_in_step(self.distribute_strategy):
            keras_own(self, iterator, data_batch)
            return
        is_kept = isinstance(iterator, EpochIterator) and iterator.is_kept
        if building.has_call(self):  # otherwise its parts exist, or are built in the first step
            # It is unknown here whether a call on a single batch trains.
            trains = iterator is None or running.current().name == "fit"
            in_scope = keras_names.strategy_given(self) is not None
            batch = (
                iterator.spec if iterator is not None else partial(others.as_tensors, data_batch)
            )
            # With checkpoints, CheckpointCallback traces the steps, and makes variables equal.
            may_trace = is_kept or not building.unbuilt_parts(self)
            building.build(
                self,
                batch,
                trains=trains,
                with_optimizer=in_scope or (trains and not is_kept),
                may_trace=may_trace and not in_scope,
            )
        # A survivor has built parts of the model that a newcomer has not built yet. The checkpoint
        # callback compares all variables, and sets their values, once they exist.
        if is_kept and ring_of(self.distribute_strategy) and iterator.is_put_back():
            alike.note(self)
        else:
            alike.make_once(self, may_differ=is_kept)

    return build


def _of_all_replicas(keras_own: Callable[..., Any]) -> Callable[..., Any]:
    """Give an epoch the metric results of its last call, and metrics the sums over all workers.

    Outside of a step, metrics would sum over all workers again, one variable at a time. Keras calls
    this before the callbacks of an epoch's end, which may save the model, or ask a metric.
    """

    @wraps(keras_own)
    def get_metrics_result_or_logs(self: Any, logs: Any) -> Any:
        average(self)
        left_totals.leave(self)
        if not logs and running.current().logs_of_epoch:  # an earlier start ran its steps
            return running.current().logs_of_epoch
        results = logs.taken() if isinstance(logs, StepLogs) else None
        if results is None:
            return keras_own(self, logs)
        return results if set(results) == set(logs) else logs

    return get_metrics_result_or_logs
