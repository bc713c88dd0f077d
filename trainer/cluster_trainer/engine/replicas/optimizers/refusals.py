"""Refuses steps whose gradients several replicas cannot sum correctly, and warns of others."""

import logging
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import tensorflow as tf

from cluster_trainer.collectives import local_devices, process_ring
from cluster_trainer.collectives.replicas import Gradient
from cluster_trainer.engine.replicas import step_context
from cluster_trainer.private import keras_names
from cluster_trainer.problems import Problem

SHOWN = 5
APART = "TRAINER_SYNC_EVERY"
SCALES_LOSS = Problem(
    APART,
    "above 1, with a LossScaleOptimizer",
    "1, or layers of float32 or bfloat16",
    "Each worker would arrive at a different scale, and skip different steps.",
)
OVERWRITES = Problem(
    APART,
    "above 1, with layers of float8",
    "1, or layers of float32 or bfloat16",
    "Their scales are the maximum over all workers in each step.",
)
TRACED_OTHERWISE = Problem(
    APART,
    "above 1 or auto, with a `tf.function` of the script's own that applies gradients",
    "1, or gradients that are applied outside of such functions",
    "TensorFlow keeps the function as it was traced, with sums over the workers or without.",
)
CLIPPED, BACKWARDS = re.compile(r"(^|/)clip_by_\w+"), "gradient_tape"
log = logging.getLogger("trainer")


def is_clipped(gradient: Gradient | None) -> bool:
    """Tell whether TensorFlow's or Keras's clipping has made a gradient, by its operation's name.

    Operations in the backward pass, such as those of a clipped activation, do not count.
    """
    tensor: Any = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
    name = tensor.op.name if hasattr(tensor, "graph") else ""  # eager tensors have none
    return bool(CLIPPED.search(name)) and BACKWARDS not in name


@cache
def warn_of_clipped_shares() -> None:
    """Warn once that a step clips each share's gradients, and not those of the batch."""
    log.warning(
        "A train_step clips gradients before it applies them: with several replicas each clips "
        "the gradients of its share, not those of the batch. Use the optimizer's `clipnorm`, "
        "`global_clipnorm` or `clipvalue` to clip those of the batch."
    )


@cache
def warn_of_training_alone() -> None:
    """Warn once that a script's own loop trains each worker alone, if a ring is requested."""
    if process_ring.is_wanted() and not tf.distribute.has_strategy():
        log.warning(
            "An optimizer was applied outside of Keras's fit and train_on_batch, for example by "
            "the script's own training loop: there the workers' gradients are not summed, and "
            "each worker trains separately. To train together, iterate over each worker's share: "
            "`for batch in cluster_trainer.share(dataset, model)`."
        )


def must_be_of_the_strategy(optimizer: Any) -> None:
    """Refuse an optimizer whose step counter all replicas of a process would share and increment.

    Raises:
        ValueError: it was created outside of the strategy's scope.
    """
    counter = keras_names.step_counter(getattr(optimizer, "inner_optimizer", optimizer))
    if not step_context.is_of_all(counter):
        name = f"The optimizer {optimizer.name!r}"
        raise ValueError(
            f"{name} {step_context.OF_NO_PART}"
            if local_devices.is_of_all(tf.distribute.get_strategy())
            else f"{name} was made outside of the strategy's scope. Make it in "
            "`with strategy.scope():`, as the model."
        )


def must_know(optimizer: Any, variables: Sequence[Any]) -> None:
    """Refuse variables that became trainable after an optimizer was built.

    Raises:
        ValueError: with their names, and a clearer text than Keras's.
    """
    if new := [*map(step_context.name_of, keras_names.unknown_to(optimizer, variables))]:
        raise ValueError(
            f"The optimizer {optimizer.name!r} was built without {', '.join(new[:SHOWN])}. Make "
            "layers trainable before `compile`, and give an optimizer all its variables at once: "
            "`optimizer.build(variables)`."
        )


def must_be_as_went_back(part: step_context.Share, *, is_weighted: bool) -> None:
    """Refuse a step if a layer's sum over replicas has wrongly assumed how its losses are scaled.

    The backward pass through such a layer does not know to which loss a gradient belongs.

    Raises:
        ValueError: the step scales the losses of only some optimizers, or only after TensorFlow has
            traced the backward pass.
    """
    if part.summed_backwards - {is_weighted}:
        raise ValueError(
            "This step has a synchronized BatchNormalization, and calls `scale_loss` for only some "
            "of its optimizers, or outside of the `tf.function` that calls the layer. With several "
            "replicas call it for all optimizers of the step, in the function that calls the "
            "layer, and before any gradient is taken; or for none."
        )
