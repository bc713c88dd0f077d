"""Names the parts of Keras whose results depend on more than one example of a batch.

Every layer, loss, metric, activation, regularizer and constraint of Keras 3.15.1 was judged. The
others treat each example alone, or are means over examples. `tests/inside/test_judged_parts.py`
lists all of them, tries most, and fails if another version of Keras has one that nobody has judged.

Constraints, and regularizers of weights, see no examples. A layer's activity regularizer sees its
outputs: L1 and L2 are sums over examples, which Keras divides by their number.
"""

from collections.abc import Iterator
from typing import Any

import keras

from cluster_trainer.private import keras_names

LAYERS = {
    "CutMix": "pastes parts of the batch's pictures into each other",
    "Distiller": "trains by losses that are given as objects, and may be anything",
    "Equalization": "makes one histogram of all pictures of the batch",
    "MelSpectrogram": "cuts off everything far below the loudest value of the batch",
    "MixUp": "mixes the batch's pictures with each other",
}
"""Layers and models that compute over the batch, each with the reason.

AugMix and RandAugment contain an Equalization, which is found within them. Keras skips one that is
directly in a functional model, but not within a Pipeline. BatchNormalization is not here: its
difference is documented, and `synchronized=True` makes it exact.
"""

ONLY_IN_TRAINING = ("CutMix", "Distiller", "Equalization", "MixUp")
"""Those of LAYERS that leave a `predict` alone."""

FUNCTIONS = {
    "categorical_generalized_cross_entropy": "compares labels of shape (n, 1) with all predictions",
    "circle": "compares the batch's examples with each other",
    "dice": "divides sums over the whole batch",
    "tversky": "divides sums over the whole batch",
}
"""The functions of losses and metrics that are not a mean over the examples, each with the reason.

Dice and Tversky are a mean if they are given the axes of an example. Hinge and SquaredHinge, which
convert labels if all labels of the batch are 0 or 1, are computed for the whole batch.
"""

BROADCASTING = {
    *("categorical_accuracy", "categorical_hinge", "hinge", "kl_divergence", "OneHotIoU"),
    *("OneHotMeanIoU", "poisson", "squared_hinge"),
}
"""Metrics that compare labels of shape (n,) with outputs of shape (n, 1) as n times n pairs.

Keras's losses give the labels the outputs' rank before, and its other metrics do or refuse them.
"""

REGULARIZERS = {"OrthogonalRegularizer": "compares the batch's outputs with each other"}
"""Regularizers whose value for a layer's outputs is not a sum over examples."""

AXES = ("axis", "axes", "attention_axes")
"""Attributes of layers that hold the axes over which, or along which, the layer computes."""

ALONG_THE_BATCH = "computes along the axis of the batch"
PADDED = "pads to the longest text of the batch: set output_sequence_length"
RANK_1 = "has one number for each example, so losses and metrics see one mean of the batch"
PAIRED = "have too few axes for the outputs, so Keras compares each with all examples' outputs"


def found_in(model: keras.Model, batch: Any = None) -> list[str]:
    """Return the parts of Keras in a compiled model that compute over the batch, with reasons.

    Args:
        model: the compiled model.
        batch: a batch, or its specification, whose labels are looked at; None: it is unknown.
    """
    found = [*_layers(model), *_losses(model), *_metrics(model)]
    found += [*_outputs(model), *_labels(model, batch)]
    return [f"{name} {why}" for name, why in dict.fromkeys(found) if why]


def found_in_predictions(model: keras.Model) -> list[str]:
    """Return the layers of Keras in a model that compute over the batch also in `predict`."""
    found = dict.fromkeys(_layers(model))
    left_out = {*ONLY_IN_TRAINING, *REGULARIZERS}
    return [f"{name} {why}" for name, why in found if why and name not in left_out]


def has_axis_of_batch(axes: Any, rank: int | None) -> bool:
    """Tell whether one of the axes may be the first of a tensor of `rank`; None: unknown rank."""
    known = [axis for axis in keras.tree.flatten(axes) if isinstance(axis, int)]
    if rank is None:
        return any(axis == 0 or axis < -1 for axis in known)
    return any(axis % rank == 0 for axis in known)


def _layers(model: keras.Model) -> Iterator[tuple[str, str]]:
    for layer in keras_names.layers_within(model):
        for why in (_of_kind(layer), _of_axes(layer), _of_options(layer)):
            yield type(layer).__name__, why
        kind = type(getattr(layer, "activity_regularizer", None)).__name__
        yield kind, REGULARIZERS.get(kind, "")


def _of_kind(layer: Any) -> str:
    kinds = [kind for kind in type(layer).__mro__ if kind.__module__.startswith("keras.")]
    return next((LAYERS[kind.__name__] for kind in kinds if kind.__name__ in LAYERS), "")


def _of_axes(layer: Any) -> str:
    axes = [getattr(layer, name, None) for name in AXES]
    rank = _rank_of_input(layer)
    return ALONG_THE_BATCH if any(has_axis_of_batch(one, rank) for one in axes) else ""


def _rank_of_input(layer: Any) -> int | None:
    try:
        first, *_ = keras.tree.flatten(layer.input)
    except (AttributeError, ValueError):  # the layer has no input, or several
        return None
    return len(first.shape) or None


def _of_options(layer: Any) -> str:
    """Return why a layer computes over the batch with its options; "" if it does not."""
    if isinstance(layer, keras.layers.EinsumDense):
        given, _, returned = layer.equation.replace(" ", "").partition("->")
        return "" if given[:1] == returned[:1] else ALONG_THE_BATCH
    if isinstance(layer, keras.layers.TextVectorization):
        options = layer.get_config()
        is_padded = options["output_mode"] == "int" and not options["ragged"]
        return PADDED if is_padded and options["output_sequence_length"] is None else ""
    return ""


def _outputs(model: keras.Model) -> Iterator[tuple[str, str]]:
    for output in _symbols(model):
        yield f"the output {output.name!r}", RANK_1 if len(output.shape) == 1 else ""


def _symbols(model: keras.Model) -> list[Any]:
    """Return a model's symbolic outputs; [] if it has none, such as before it is built."""
    outputs = keras.tree.flatten(getattr(model, "outputs", None))
    return [one for one in outputs if isinstance(one, keras.KerasTensor)]


def _labels(model: keras.Model, batch: Any) -> Iterator[tuple[str, str]]:
    is_labelled = isinstance(batch, tuple) and len(batch) > 1
    outputs, labels = _symbols(model), keras.tree.flatten(batch[1] if is_labelled else None)
    if len(labels) != len(outputs):
        return
    least = 1 if any(_plain(name) in _BROADCASTING for name, _ in _metrics(model)) else 2
    for label, output in zip(labels, outputs, strict=True):
        rank = getattr(getattr(label, "shape", None), "rank", None)
        if rank and len(output.shape) - rank >= least:
            yield "labels", PAIRED


def _losses(model: keras.Model) -> Iterator[tuple[str, str]]:
    for given in keras.tree.flatten(keras_names.user_losses(model)):
        if given is not None and given != "":
            yield _of_function(keras.losses.get(given))


def _metrics(model: keras.Model) -> Iterator[tuple[str, str]]:
    for given in keras_names.user_metrics(model):
        yield _of_name(given) if isinstance(given, str) else _of_function(given)


def _of_function(part: Any) -> tuple[str, str]:
    """Return the name of a loss or a metric, and why it is not a mean over examples, or ""."""
    function = keras_names.function_of_metric(part)
    options = keras_names.options_of_loss(part) | keras_names.options_of_loss(function)
    function = getattr(function, "fn", function)  # a metric may average a loss object
    name, axis = getattr(function, "__name__", type(function).__name__), options.get("axis")
    if has_axis_of_batch(axis, None):
        return name, ALONG_THE_BATCH
    return _of_name(name) if axis is None else (name, "")


def _of_name(name: str) -> tuple[str, str]:
    return name, _REASONS.get(_plain(name), "")


def _plain(name: str) -> str:
    """Return the same text for each of Keras's names, such as SquaredHinge and squared_hinge."""
    return name.replace("_", "").lower()


_REASONS = {_plain(name): why for name, why in FUNCTIONS.items()}
_BROADCASTING = {*map(_plain, BROADCASTING)}
