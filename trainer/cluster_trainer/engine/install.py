"""What of Keras and TensorFlow is replaced: all of it is here, and stays for the whole process.

| replaced | where | by |
| --- | --- | --- |
| `TFEpochIterator` | replicas are kept in step | calls of several steps on exact shares |
| `make_train_function`, `make_test_function` | the same | `steps.Steps` |
| `make_predict_function` | the same | `predictions.Predictions` |
| `_maybe_symbolic_build` | the same | `building.build`, for what a replica gets |
| `num_replicas_in_sync` | within a step of several replicas | 1 |
| optimizers' `apply`, `apply_gradients`, `scale_loss` | the same | reduced gradients |
| what optimizers do with several replicas | the same | each replica's own copies |
| a variable's `_direct_assign` | the same | the replica's own copy |
| losses' reduction and masks | the same | the whole batch's, not the share's |
| `GradientTape.gradient`, `add_loss` of a vector | the same | sums over the whole batch |
| `assign` of a variable that is a queue of rows | the same | the rows of all replicas |
| `Mean.update_state` | the same | a number for a share, as much as the share |
| averages of `synchronized` BatchNorm | the same | sums without borrowed examples |
| `SeedGenerator.next` | the same | seeds of each replica's own |
| `get_data_adapter` | data are a source of single examples | `random_access.RandomAccess` |
| `fit`, `evaluate`, `predict`, `…_on_batch` | everywhere | the same, announced (`running`) |
| the progress bar's count | everywhere | of the batches that there were |
| the progress bar | nothing but text may be printed | one line at its end |
| variables' `value` and `assign` | everywhere | the same, told between a script's fits |
| `_get_metrics_result_or_logs` | everywhere | the results of all replicas |

For a moment, and put back at once: `_direct_assign` while a model is called on zeros
(building/on_zeros.py), and TensorFlow's random functions while the first batch is compared
(first_batch/draws.py). Outside of the engine: `Model.export` of a script's fit
(fits/shared/written.py).
"""

import inspect
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cache, partial, wraps
from typing import Any
from weakref import WeakSet

import keras
import tensorflow as tf

from cluster_trainer.collectives import group
from cluster_trainer.collectives.replicas import ring_of
from cluster_trainer.engine import progress_bar, reads, running
from cluster_trainer.engine.building import building
from cluster_trainer.engine.data import random_access
from cluster_trainer.engine.data.comparing import RowsOfItsOwnError
from cluster_trainer.engine.epoch_iterator import EpochIterator
from cluster_trainer.engine.fixed_size import explained
from cluster_trainer.engine.predictions import Predictions, are_few, build_to_predict
from cluster_trainer.engine.replicas import (
    alike,
    batch_norm,
    each_example,
    losses,
    optimizers,
    queues,
    random_layers,
    statistics,
    step_context,
)
from cluster_trainer.engine.steps import StepLogs, Steps, as_tensor
from cluster_trainer.private import keras_names, tensorflow_names
from cluster_trainer.private.replaceable import Replaceable

log = logging.getLogger("trainer")
# (run it, its bound arguments, what is to be announced) -> History
AroundFit = Callable[[Callable[..., Any], inspect.BoundArguments, running.Running], Any]
# (run it, the strategy of its model) -> what it returns
AroundOther = Callable[[Callable[[], Any], tf.distribute.Strategy], Any]
IN_STEP = (
    tensorflow_names.DefaultStrategy,  # none, as TensorFlow calls it
    tf.distribute.OneDeviceStrategy,
    tf.distribute.MirroredStrategy,
    tf.distribute.MultiWorkerMirroredStrategy,
)
KerasTrainer = keras_names.TensorFlowTrainer
KerasIterator = keras_names.TFEpochIterator


def is_installed() -> bool:
    """Tell whether it is replaced in this process."""
    return keras_names.EPOCH_ITERATOR.own is _iterator


def keeps_in_step(strategy: tf.distribute.Strategy) -> bool:
    """Tell whether a strategy is one that the engine is made for."""
    return isinstance(strategy, IN_STEP)


def install(around: AroundFit, around_other: AroundOther, *, plain_bars: bool = False) -> None:
    """Replace it; once in a process.

    Args:
        around: what a `fit` gets from outside of the engine.
        around_other: the same of the other calls, outside of a `fit`.
        plain_bars: whether nothing but text may be printed.
    """
    # What the repaired Keras says of arrays (patches/) does not hold here.
    warnings.filterwarnings("ignore", "No random seed is set, so each worker shuffles the arrays")
    _replace_in_steps()
    _replace_of_optimizers()
    keras_names.GET_DATA_ADAPTER.wrap(random_access.accepting)
    keras_names.VALUE.wrap(reads.telling_value)
    keras_names.ASSIGN.wrap(reads.telling_assign)
    keras_names.UPDATE_PROGBAR.wrap(progress_bar.counting)
    if plain_bars:
        Replaceable(keras.utils.Progbar, "__init__").wrap(progress_bar.plain)
    _replace_of_models(around, around_other)


def _replace_in_steps() -> None:
    """Replace what takes a replica's share for the whole batch."""
    is_shared = step_context.is_shared
    tensorflow_names.NUM_REPLICAS_IN_SYNC.wrap(step_context.seeing_one_replica)
    keras_names.REDUCE_VALUES.put_if(losses.reduced, is_shared)
    keras_names.APPLY_MASK.put_if(losses.masked, is_shared)
    Replaceable(tf.GradientTape, "gradient").put_if(each_example.gradient_of_batch, is_shared)
    keras_names.AGGREGATE_ADDITIONAL_LOSS.put_if(each_example.aggregated, is_shared)
    tensorflow_names.ASSIGN.put_if(queues.assigned, queues.is_traced)
    tensorflow_names.ASSIGN_OF_RESOURCE.put_if(queues.assigned, queues.is_traced)
    Replaceable(keras.metrics.Mean, "update_state").put(losses.update_mean)
    keras_names.COMPUTE_MOMENTS_SYNC.put_if(batch_norm.moments_of_all, is_shared)
    keras_names.MOMENTS.put_if(batch_norm.moments_of_layer, is_shared)
    Replaceable(keras.random.SeedGenerator, "next").put(random_layers.next_apart)


def _replace_of_optimizers() -> None:
    """Replace what of Keras's optimizers knows of several replicas."""
    base, scaling = keras_names.BaseOptimizer, keras.optimizers.LossScaleOptimizer
    for kind in (base, scaling, keras.optimizers.MultiOptimizer):
        if "scale_loss" in vars(kind):
            Replaceable(kind, "scale_loss").wrap(optimizers.weighting)
    Replaceable(base, "__init__").wrap(optimizers.seeing_to_the_class)
    Replaceable(base, "__setattr__").wrap(optimizers.seeing_to_the_method)
    is_reduced = optimizers.is_reduced
    keras_names.UPDATE_STEP.put_if(optimizers.update_own_copies, is_reduced)
    keras_names.APPLY_WEIGHT_DECAY.put_if(optimizers.decay_own_copies, is_reduced)
    keras_names.INCREMENT_ACCUMULATORS.put_if(optimizers.accumulate_in_own, is_reduced)
    keras_names.OVERWRITE_WITH_AVERAGE.put_if(optimizers.overwrite_own, is_reduced)
    keras_names.LOSS_SCALE_APPLY.put_if(keras_names.LOSS_SCALE_COMMON_APPLY.own, is_reduced)
    keras_names.DIRECT_ASSIGN.put(optimizers.assign)


def _replace_of_models(around: AroundFit, around_other: AroundOther) -> None:
    """Replace what Keras's models are trained, evaluated and asked for predictions by."""
    keras_names.EPOCH_ITERATOR.put(_iterator)
    KerasTrainer.make_train_function = _making(
        "train_function", lambda it: Steps(it, it.train_step, "training")
    )
    KerasTrainer.make_test_function = _making(
        "test_function", lambda it: Steps(it, it.test_step, "evaluation")
    )
    KerasTrainer.make_predict_function = _making("predict_function", Predictions)
    keras_names.MAYBE_SYMBOLIC_BUILD.wrap(_building)
    KerasTrainer.fit = _announced_fit(KerasTrainer.fit, around)
    KerasTrainer.evaluate = _announced_evaluate(_with_averages(KerasTrainer.evaluate))
    KerasTrainer.predict = _batch_by_batch(_with_averages(KerasTrainer.predict))
    for name in ("test_on_batch", "predict_on_batch"):
        setattr(KerasTrainer, name, _with_averages(getattr(KerasTrainer, name), in_loop=True))
    KerasTrainer.train_on_batch = _averaging(KerasTrainer.train_on_batch)
    for name in ("train_on_batch", "test_on_batch", "predict_on_batch"):
        setattr(KerasTrainer, name, _with_failures_told(getattr(KerasTrainer, name)))
    for name in ("evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"):
        setattr(KerasTrainer, name, _run_by(getattr(KerasTrainer, name), around_other))
    keras_names.METRICS_RESULT_OR_LOGS.wrap(_of_all_replicas)


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
        if force or getattr(self, name) is None:
            setattr(self, name, make(self))
        return getattr(self, name)

    return make_function


def _building(keras_own: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(keras_own)
    def build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        """Build what a model has not built yet, for what a replica gets; see building.py."""
        if building.is_alone(self):
            return
        if isinstance(iterator, KerasIterator) or not keeps_in_step(self.distribute_strategy):
            keras_own(self, iterator, data_batch)
            return
        is_kept = isinstance(iterator, EpochIterator) and iterator.is_kept
        if building.has_call(self):  # else its parts exist, or are built in the first step
            # What asks for a single batch may train, or not.
            trains = iterator is None or running.current().name == "fit"
            in_scope = keras_names.strategy_given(self) is not None
            batch = iterator.spec if iterator is not None else partial(_as_tensors, data_batch)
            # What the trace of a kept fit's steps makes is made alike; see Keeper.
            may_trace = is_kept or not building.unbuilt_parts(self)
            building.build(
                self,
                batch,
                trains=trains,
                with_optimizer=in_scope or (trains and not is_kept),
                may_trace=may_trace and not in_scope,
            )
        # What a worker that goes on has built of a model, a new one has not; the keeper of a fit's
        # checkpoints compares all variables, and gives them their values, once they exist.
        if is_kept and ring_of(self.distribute_strategy) and iterator.is_put_back():
            alike.note(self)
        else:
            alike.make_once(self, may_differ=is_kept)

    return build


def _as_tensors(batch: Any) -> Any:
    """Return what a user gives for a batch, which may be pandas', as a step gets it."""
    return keras.tree.map_structure(as_tensor, batch)


def _of_all_replicas(keras_own: Callable[..., Any]) -> Callable[..., Any]:
    """Give an epoch the results of metrics that its last call came with.

    Asked outside of a step, metrics would sum over all workers again, one variable at a time. Keras
    calls this before the callbacks of an epoch's end, which may save the model.
    """

    @wraps(keras_own)
    def get_metrics_result_or_logs(self: Any, logs: Any) -> Any:
        _average(self)
        if not logs and running.current().logs_of_epoch:  # its steps were an earlier start's
            return running.current().logs_of_epoch
        results = logs.taken() if isinstance(logs, StepLogs) else None
        if results is None:
            return keras_own(self, logs)
        return results if set(results) == set(logs) else logs

    return get_metrics_result_or_logs


def seed_of_fit(number: int) -> int:
    """Return the seed of a fit's order: drawn from the script's seed, or its number without one.

    A script's seed is the same on all workers, as by `keras.utils.set_random_seed`.
    """
    if tensorflow_names.global_seed() is None:
        return number
    return tensorflow_names.next_operation_seed()


MAKERS = ("make_train_function", "make_test_function", "make_predict_function")


def own_functions(model: Any) -> list[str]:
    """Return the methods by which a model makes the functions itself that take Keras's batches."""
    return [
        name for name in MAKERS if getattr(type(model), name) is not getattr(KerasTrainer, name)
    ]


def _has_own_functions(model: Any) -> bool:
    """Tell whether a model has such methods.

    They get batches from Keras's own iterators, then; what they do on several replicas is theirs.
    """
    own = own_functions(model)
    if own:
        log.warning(
            "%s has a %s of its own: it trains as Keras alone does, without checkpoints; on "
            "several replicas the result depends on their number",
            type(model).__name__,
            ", ".join(own),
        )
    return bool(own)


def _announced_fit(fit: Callable[..., Any], around: AroundFit) -> Callable[..., Any]:
    signature = inspect.signature(fit)

    @wraps(fit)
    def announced_fit(self: Any, *arguments: Any, **keywords: Any) -> Any:
        given = signature.bind(self, *arguments, **keywords)
        call = _running("fit", self, given.arguments.get("callbacks"), running.FIT_HOOKS)
        is_inner = running.is_in_fit()  # a callback's own
        call = replace(call, is_fit=True)
        if is_inner or call.has_own_functions or not keeps_in_step(self.distribute_strategy):
            reads.note(self)
            order = running.Order(seed=seed_of_fit(0))
            return _run(fit, given, replace(call, order=order))
        return around(partial(_run, fit), given, call)

    return announced_fit


def _run(fit: Callable[..., Any], given: inspect.BoundArguments, call: running.Running) -> Any:
    model = given.args[0]
    with running.announced(call), group.failure_told(), _explained(model, call):
        history = fit(*given.args, **given.kwargs)
        _average(model)
    return history


def _explained(model: Any, call: running.Running) -> AbstractContextManager[None]:
    return explained(model, call.name, lambda: call.batch())  # noqa: PLW0108  it is set later


def _announced_evaluate(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(evaluate)

    @wraps(evaluate)
    def announced_evaluate(self: Any, *arguments: Any, **keywords: Any) -> Any:
        callbacks = signature.bind(self, *arguments, **keywords).arguments.get("callbacks")
        # Keras's own sign of the fit's validations, beside those that its callbacks call for.
        is_fits = bool(keywords.get(keras_names.IS_VALIDATION_OF_FIT))
        call = _running("evaluate", self, callbacks, running.TEST_HOOKS, is_fits=is_fits)
        with running.announced(call), group.failure_told(), _explained(self, call):
            return evaluate(self, *arguments, **keywords)

    return announced_evaluate


def _running(
    name: str, model: Any, callbacks: Any, hooks: tuple[str, ...], *, is_fits: bool = False
) -> running.Running:
    """Return what is announced of a call.

    Args:
        name: of the call.
        model: whose it is.
        callbacks: as they are given.
        hooks: their methods that are called for each batch.
        is_fits: whether it is the validation of the fit that runs. A call of a callback's own does
            not end the fit, which is not kept then: the workers agree on that in it, and the next
            call of the fit's own does.
    """
    wanting = running.wants_each_batch(callbacks, hooks) if model.steps_per_execution == 1 else []
    if wanting:
        log.info("one step a call, as %s wants to be called for each batch", ", ".join(wanting))
    watched = running.current().watched
    return replace(  # a validation's stops and limits are those of its fit
        running.current(),
        name=name,
        one_batch_a_call=bool(wanting),
        has_own_functions=_has_own_functions(model),
        is_of_callback=running.is_in_fit() and not is_fits,
        has_iterator=running.is_in_fit(),  # also where its data predict, before it is made
        watched=watched if is_fits else replace(watched, meet=lambda: None),
    )


def _batch_by_batch(predict: Callable[..., Any]) -> Callable[..., Any]:
    """Let Keras take as many batches at a time as it was told to: it collects what they give.

    Over a ring each worker predicts few rows by itself, as these may be its own: a game's states,
    or noise. So it does more of them, where the workers find that theirs differ.
    """
    signature = inspect.signature(predict)

    @wraps(predict)
    def predict_batches(self: Any, *arguments: Any, **keywords: Any) -> Any:
        run = partial(predict, self, *arguments, **keywords)
        call = _running("predict", self, None, ())
        call.one_batch_a_call = self.steps_per_execution == 1
        call.asked = WeakSet()  # what Keras calls for each batch does not know the first
        rows = signature.bind(self, *arguments, **keywords).arguments.get("x")
        if ring_of(self.distribute_strategy) and are_few(rows):
            return _by_itself(self, (rows,), run, call)
        try:
            with running.announced(call), group.failure_told(), _explained(self, call):
                return run()
        except RowsOfItsOwnError as error:
            _say_of_own_rows()
            return _by_itself(self, error.spec, run, call)

    return predict_batches


def _by_itself(model: Any, rows: Any, run: Callable[[], Any], call: running.Running) -> Any:
    """Return what this worker predicts without the others, who need not predict as often.

    All meet the first time that a model predicts, and get the chief's values.

    Args:
        model: which predicts.
        rows: what it is given, or the specification of that.
        run: predicts.
        call: what is announced.
    """

    def alone() -> Any:
        call_of_one = replace(call, watched=replace(call.watched, agree=None))
        with running.announced(call_of_one), _alone(model), _explained(model, call_of_one):
            return run()

    with group.failure_told():
        try:
            build_to_predict(model, rows)
        except Exception:  # noqa: BLE001  what symbols cannot build: it gets its values after that
            alone()
        # Outside of a fit a model is given values once, and not at each call.
        with running.announced(call) if running.is_in_fit() else nullcontext():
            alike.make_once(model)
        if statistics.are_changed(model):
            _average(model)
        return alone()


@contextmanager
def _alone(model: Any) -> Iterator[None]:
    """Let a model predict as if there were no other workers, by a function that is kept."""
    of_all = model.make_predict_function()
    model.predict_function = getattr(of_all, "alone", None)
    try:
        with group.left_out():
            yield
    finally:
        lone, model.predict_function = model.predict_function, of_all
        if isinstance(of_all, Predictions):
            of_all.alone = lone


@cache
def _say_of_own_rows() -> None:
    log.info(
        "predict: the workers were given different rows, such as noise that each has drawn: each "
        "predicts its own by itself"
    )


def _with_averages(method: Callable[..., Any], *, in_loop: bool = False) -> Callable[..., Any]:
    """Average a model's statistics before it is looked at.

    Args:
        method: looks at it.
        in_loop: whether it may be called for each batch: only if steps have changed them.
    """

    @wraps(method)
    def with_averages(self: Any, *arguments: Any, **keywords: Any) -> Any:
        call = running.current()
        is_due = not in_loop or statistics.are_changed(self)
        is_alikes = call.is_fit and self not in call.alike and ring_of(self.distribute_strategy)
        if is_due and not is_alikes:
            _average(self)  # else `alike` does it, once it is known that all workers have it
        return method(self, *arguments, **keywords)

    return with_averages


def _averaging(train_on_batch: Callable[..., Any]) -> Callable[..., Any]:
    """Average a model's statistics after a step, over a ring.

    Whatever looks at them next may be called by this worker alone.
    """

    @wraps(train_on_batch)
    def averaging(self: Any, *arguments: Any, **keywords: Any) -> Any:
        logs = train_on_batch(self, *arguments, **keywords)
        if ring_of(self.distribute_strategy):
            _average(self)
        return logs

    return averaging


def _with_failures_told(method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)

    @wraps(method)
    def with_failures_told(self: Any, *arguments: Any, **keywords: Any) -> Any:
        def batch() -> Any:
            given = signature.bind(self, *arguments, **keywords).arguments
            parts = [given.get(name) for name in ("x", "y", "sample_weight")]
            return _as_tensors(keras.utils.pack_x_y_sample_weight(*parts))

        with group.failure_told(), explained(self, method.__name__, batch):
            return method(self, *arguments, **keywords)

    return with_failures_told


def _run_by(method: Callable[..., Any], around: AroundOther) -> Callable[..., Any]:
    @wraps(method)
    def run_by(self: Any, *arguments: Any, **keywords: Any) -> Any:
        run = partial(method, self, *arguments, **keywords)
        if running.is_in_fit():
            return run()
        reads.note(self)
        with reads.unheard():
            if not keeps_in_step(self.distribute_strategy):
                return run()
            return around(run, self.distribute_strategy)

    return run_by


def _average(model: Any) -> None:
    if keeps_in_step(model.distribute_strategy):
        statistics.average(model, model.distribute_strategy)
