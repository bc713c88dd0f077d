"""Builds the parts of a model before a step needs them, at the same time as Keras if possible.

TensorFlow traces a function twice if its first trace has created variables, which takes seconds for
a model of many layers. With several replicas, no layer or metric may create variables within a
step. So variables are created before a step is traced. The table in decision 9 shows the moments.

If the model is to be trained, it is built from the outputs of `training=True`, as in a step. In
these cases the step itself still builds its parts:

- without a strategy, if the call is not a `fit`, if the step is a user's own or runs eagerly, or if
  unbuilt layers have a `build` of their own;
- if the model has no `call`;
- over a ring, if the step is a user's own and the model's `call` does not accept its arguments.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from weakref import WeakSet

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer.collectives.replicas import Replicas, ring_of
from cluster_trainer.engine.building import copied_weights
from cluster_trainer.engine.building.on_zeros import CallChangesError, call_on_zeros
from cluster_trainer.engine.building.unbuilt import Unbuilt
from cluster_trainer.engine.functions import runs_eagerly
from cluster_trainer.private import keras_names
from cluster_trainer.problems import ConfigurationError, Problem

log = logging.getLogger("trainer")
MOST_NAMED = 5
STEP, TEST_STEP = [
    (name, "compute_loss", "compute_metrics") for name in ("train_step", "test_step")
]
# Layers whose `build` creates no variable, except in nested layers.
MAKE_NOTHING = (
    keras.Layer,
    keras.Sequential,
    keras.layers.Wrapper,
    keras.layers.Bidirectional,
    keras.layers.TimeDistributed,
    keras.layers.StackedRNNCells,
    keras_names.Merge,
    keras.layers.Concatenate,
    keras.layers.Dot,
    keras.layers.Subtract,
)
_built_by_steps: WeakSet[Any] = WeakSet()  # models that only their own steps can build


def is_alone(model: Any) -> bool:
    """Tell whether a model has one replica, and no strategy."""
    return keras_names.strategy_given(model) is None and ring_of(model.distribute_strategy) is None


def has_call(model: Any) -> bool:
    """Tell whether a model has a `call`. Without one its steps call its parts, as in a GAN."""
    return type(model).call is not keras.Model.call


def unbuilt_parts(model: Any) -> list[str]:
    """Return the names of a model's layers that have yet to create variables."""
    unbuilt = [one for one in keras_names.layers_within(model, include_self=False) if not one.built]
    return [one.name for one in unbuilt if _makes_variables(one)]


def refuse_unbuilt(model: Any) -> None:
    """Refuse a model whose own steps would build layers, with different values on each worker.

    Raises:
        ConfigurationError: the model has such layers; it names the first `MOST_NAMED`.
    """
    if names := unbuilt_parts(model):
        shown = ", ".join(names[:MOST_NAMED])
        accepted = "layers that are built before `fit`"
        advice = (
            "The first step would give them different values on each worker. Give each an `Input`."
        )
        raise ConfigurationError([Problem(f"the model {model.name}", shown, accepted, advice)])


def _makes_variables(layer: Any) -> bool:
    return not any(type(layer).build is kind.build for kind in MAKE_NOTHING)


def build(
    model: Any,
    batch: Callable[[], Any],
    *,
    trains: bool = True,
    with_optimizer: bool = True,
    may_trace: bool = False,
) -> bool:
    """Build all unbuilt parts of a model that can be called.

    Args:
        model: the compiled model.
        batch: returns a replica's batch, as tensors or their specifications.
        trains: whether the model is trained next, and not evaluated.
        with_optimizer: whether to build its optimizer, too.
        may_trace: whether the parts may be left to a step of the user's own if building fails, for
            example because the step calls the model with other arguments.

    Returns:
        whether the model could be built.

    Raises:
        Exception: Keras's own, if building fails and may not be left to the step.
    """
    with model.distribute_strategy.scope():
        if may_trace and model in _built_by_steps:
            return False
        is_layers_only = _builds_loss_and_metrics(model, trains=trains)
        if _lacks_layers(model) if is_layers_only else not _all_built(model):
            given = batch()
            as_in_step = trains and trains_as_keras(model) and _try(model, _as_a_step, given)
            try:
                with _as_if_built(model.optimizer):
                    if is_layers_only:
                        _as_in_a_scope(model, given, _layers)
                    else:
                        _all_but_optimizer(model, given)
            except Exception as error:
                if not may_trace or _is_as_keras(model, STEP if trains else TEST_STEP):
                    raise
                log.debug("%s is built by its first step: %s", model.name, error)
                _built_by_steps.add(model)
                return False
            if (trains or with_optimizer) and not as_in_step and _lacks_layers(model):
                _try(model, _call, given)
        if with_optimizer:
            _build_optimizer(model)
    return True


def build_for_first_step(model: Any, batch: Callable[[], Any]) -> None:
    """Build the parts that the first training step of a `fit` needs, after the callbacks' hooks.

    If building fails, the step builds them, and reports any problem. Over a ring, `build` has
    already built everything but the optimizer.
    """
    if model.optimizer is None or not has_call(model):
        return
    if is_alone(model):
        is_built = all(one.built for one in (*_compiled(model), model.optimizer))
        is_left = runs_eagerly(model) or _has_own_builds(model)
        if trains_as_keras(model) and not (is_built or is_left):
            _try(model, _all_as_a_step, batch())
        return
    if not trains_as_keras(model):
        return  # the step's own layers and variables are not known yet
    # A callback may have changed the model's calls of layers.
    if model.optimizer.built or not _lacks_layers(model) or _try(model, _call, batch()):
        _build_optimizer(model)


def _try(model: Any, build_part: Callable[[Any, Any], None], batch: Any) -> bool:
    """Run `build_part`, and tell whether it succeeded; if not, undo its changes."""
    try:
        _whole(model, build_part, batch)
    except CallChangesError:
        raise
    except Exception as error:  # noqa: BLE001  a user's own code, which may succeed in a step
        log.debug("%s is built by its first step: %s", model.name, error)
        return False
    return True


def _whole(model: Any, build_part: Callable[[Any, Any], None], batch: Any) -> None:
    """Run `build_part`; if it fails, undo its changes, and raise its error."""
    unbuilt, layers = [one for one in _compiled(model) if not one.built], Unbuilt(model)
    try:
        with _warnings_if_it_works(), _drawing_once(model):
            build_part(model, batch)
    except BaseException:
        layers.restore()
        for one in unbuilt:
            one.built = False
            if one is keras_names.compiled_loss(model):
                one.metrics.clear()  # building adds to them
        raise


@contextmanager
def _drawing_once(model: Any) -> Iterator[None]:
    """Leave the NumPy draws of layers to the first step of a model that runs eagerly.

    That step calls the layers again, but builds none of them. So NumPy's generator is restored to
    its state before the calls. Otherwise the step would lack the numbers that a call on symbols has
    drawn, such as the call with which Keras builds a Sequential model. Draws within a layer's
    `build` are kept. Python's generator is not restored, because initializers that a `build`
    creates take their seeds from it.
    """
    if not runs_eagerly(model):
        yield
        return
    own, state, is_building = keras_names.MAYBE_BUILD.own, np.random.get_state(), False  # noqa: NPY002

    def build_layer(layer: Any, *arguments: Any) -> None:
        nonlocal state, is_building
        if is_building:
            own(layer, *arguments)
            return
        np.random.set_state(state)  # noqa: NPY002
        is_building = True
        try:
            own(layer, *arguments)
        finally:
            is_building = False
            state = np.random.get_state()  # noqa: NPY002

    try:
        with keras_names.MAYBE_BUILD.put_for_now(build_layer):
            yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


@contextmanager
def _warnings_if_it_works() -> Iterator[None]:
    """Show warnings after the context succeeds, and drop them if it raises.

    Keras warns of layers with "unbuilt state" that it cannot call on symbols. After such a failure
    the layers are built in another way, so the warning would be misleading.
    """
    with warnings.catch_warnings(record=True) as caught:
        yield
    for one in caught:
        warnings.warn_explicit(
            one.message, one.category, one.filename, one.lineno, source=one.source
        )


def _builds_loss_and_metrics(model: Any, *, trains: bool) -> bool:
    """Tell whether a step builds the loss and the metrics, as in Keras, from its own outputs.

    Keras builds them from the outputs of `call` in a strategy's scope, which has to come first if
    a process has several replicas.
    """
    if _is_as_keras(model, ("train_step" if trains else "test_step",)):
        return False
    has_scope = keras_names.strategy_given(model) is not None
    return not has_scope and Replicas.of(model.distribute_strategy).local == 1


def _all_but_optimizer(model: Any, batch: Any) -> None:
    """Build layers, loss and metrics; see `_as_in_a_scope`.

    The functions of a loss or a metric that runs eagerly may compute with NumPy, so they cannot be
    called on symbols. Their objects are built from the shapes of labels and outputs, and what they
    create when they are first called is left to the first step.
    """
    try:
        _as_in_a_scope(model, batch, keras_names.symbolic_build)
    except CallChangesError:
        raise
    except Exception:
        if not runs_eagerly(model):
            raise
        if _lacks_layers(model):
            _as_in_a_scope(model, batch, _layers)
        _try(model, _loss_and_metrics, batch)


def _layers(model: Any, batch: Any) -> None:
    x, *_ = keras.utils.unpack_x_y_sample_weight(keras.tree.map_structure(symbol, batch))
    keras_names.compute_output_spec(model, x, training=False)


def _loss_and_metrics(model: Any, batch: Any) -> None:
    """Build loss and metrics without calling their functions."""

    def build_each(x: Any, y: Any, _: Any) -> None:
        outputs = _outputs(model, x)
        for one in _compiled(model):
            if not one.built:
                one.build(y, outputs)

    _in_symbols(build_each, batch)


def _as_in_a_scope(model: Any, batch: Any, build_part: Callable[[Any, Any], None]) -> None:
    """Build parts as Keras does in a strategy's scope, if necessary by a call on zeros.

    Three ways are tried in turn: `build_part` with TensorFlow's functions inlined, `build_part`
    alone, and a call on zeros followed by `build_part`, which calls the model on symbols. A
    function that needs AutoGraph cannot be inlined. A layer that creates variables from numbers
    cannot be called on symbols.

    Raises:
        CallChangesError: a call on zeros would have a lasting effect.
        Exception: Keras's own, if all three ways fail.
    """
    if _try(model, _inlined(build_part), batch):
        return
    try:
        _whole(model, build_part, batch)
    except Exception as error:
        if not has_call(model):
            raise
        try:
            is_built = _try(model, call_on_zeros, batch)
        except CallChangesError as changes:
            raise changes from error
        if not is_built:
            raise
        _whole(model, build_part, batch)


def _inlined(build_part: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    def build_inlined(model: Any, batch: Any) -> None:
        with _functions_inlined():
            build_part(model, batch)

    return build_inlined


def _all_as_a_step(model: Any, batch: Any) -> None:
    if not _all_built(model):
        _as_a_step(model, batch)
    if model.trainable_variables:  # otherwise Keras applies no optimizer
        _build_optimizer(model)


def _as_a_step(model: Any, batch: Any) -> None:
    """Build layers, loss and metrics as TensorFlowTrainer.train_step does, without training."""

    def step(x: Any, y: Any, sample_weight: Any) -> None:
        outputs = _outputs(model, x)
        loss, metrics = keras_names.compiled_loss(model), keras_names.compiled_metrics(model)
        if loss is not None and not loss.built:
            keras_names.compute_loss(model, x, y, outputs, sample_weight, training=True)
        if metrics is not None and not metrics.built:
            model.compute_metrics(x, y, outputs, sample_weight)

    _in_symbols(step, batch)


def _call(model: Any, batch: Any) -> None:
    _in_symbols(lambda x, *_: _outputs(model, x), batch)


def _outputs(model: Any, x: Any) -> Any:
    return model(x, training=True) if keras_names.call_takes_training(model) else model(x)


def _in_symbols(function: Callable[..., Any], batch: Any) -> None:
    """Call a function of (x, y, sample_weight) on symbols, and keep only the parts that it builds.

    During the call Keras assigns no variables, draws no seeds, and discards added losses.
    """
    symbols = keras.tree.map_structure(symbol, batch)
    with _functions_inlined():
        keras_names.compute_output_spec(function, *keras.utils.unpack_x_y_sample_weight(symbols))


@contextmanager
def _functions_inlined() -> Iterator[None]:
    """Run TensorFlow's functions as Python functions.

    If a function were traced here, all steps would reuse the trace, which lacks its assignments.
    """
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)  # noqa: FBT003
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


def symbol(value: Any) -> Any:
    """Return Keras's symbol for a tensor or its specification; None for None."""
    if value is None:
        return None
    return keras.KerasTensor(value.shape, keras.backend.standardize_dtype(value.dtype))


def trains_as_keras(model: Any) -> bool:
    """Tell whether a model's training steps create the same parts as `_as_a_step`, and no more."""
    return has_call(model) and _is_as_keras(model, STEP)


def evaluates_as_keras(model: Any) -> bool:
    """Tell whether a model's evaluation steps call Keras's own methods and nothing else."""
    return _is_as_keras(model, TEST_STEP)


def steps_as_keras(model: Any) -> bool:
    """Tell whether a model's `train_step` is Keras's."""
    return _is_as_keras(model, ("train_step",))


def _is_as_keras(model: Any, methods: Sequence[str]) -> bool:
    own = keras.Model
    return all(
        getattr(getattr(model, name), "__func__", None) is getattr(own, name) for name in methods
    )


def _has_own_builds(model: Any) -> bool:
    """Tell whether an unbuilt layer has a `build` that is not Keras's own.

    Such a `build` may fail on symbols and leave effects that cannot be undone.
    """
    unbuilt = (one for one in keras_names.layers_within(model) if not one.built)
    return any(not type(one).build.__module__.startswith("keras.") for one in unbuilt)


def _compiled(model: Any) -> list[Any]:
    compiled = keras_names.compiled_loss(model), keras_names.compiled_metrics(model)
    return [one for one in compiled if one is not None]


def _lacks_layers(model: Any) -> bool:
    return not all(layer.built for layer in keras_names.layers_within(model))


def _all_built(model: Any) -> bool:
    """Tell whether everything except the optimizer is built."""
    return not _lacks_layers(model) and all(one.built for one in _compiled(model))


@contextmanager
def _as_if_built(optimizer: Any) -> Iterator[None]:
    """Keep Keras from building the optimizer, which is built later."""
    if optimizer is None or optimizer.built:
        yield
        return
    optimizer.built = True
    try:
        yield
    finally:
        optimizer.built = False


def _build_optimizer(model: Any) -> None:
    optimizer = model.optimizer
    if optimizer is None or optimizer.built:
        return
    # Earlier versions built it within `apply` in the first step on one replica, and outside of
    # `apply` with several. The names of its variables must match their checkpoints.
    scope: AbstractContextManager[Any] = nullcontext()
    if is_alone(model) and not isinstance(optimizer, keras.optimizers.MultiOptimizer):
        scope = keras.name_scope(optimizer.name, caller=optimizer)
    with scope:
        optimizer.build(model.trainable_variables)
    optimizer.built = True
    if not is_alone(model):
        copied_weights.note(optimizer, model.trainable_variables)
