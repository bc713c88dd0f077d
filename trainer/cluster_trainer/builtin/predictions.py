"""Writes a trained classifier's predictions of test examples to predictions.json, for reports."""

import base64
import io
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from PIL import Image

from cluster_trainer.data.examples import DataSet, Examples
from cluster_trainer.files import write_whole

FILE = "predictions.json"
MAX_SECONDS = 3.0  # the other workers wait meanwhile
MAX_CLASSES = 1000
BATCH = 32
SHOWN = 6  # the number of pictures with correct predictions, and of those with wrong ones
MAX_PIXELS = 96
PICTURE_RANK = 3  # [height, width, channels]
CHANNELS = (1, 3)
OUTPUT_RANK = 2  # [n, classes]
log = logging.getLogger("trainer")


def write_predictions(model: keras.Model | None, data: DataSet, folder: Path) -> None:
    """Predict an even sample of the test examples, for a few seconds at most; write the results.

    The file has these members:

    - `examples`, the number of examples in the sample, and `total`, that of all test examples;
    - `matrix`, [classes][classes]: counts by true class (row) and predicted class (column);
    - `classes`: the names of the classes, or None;
    - `pictures`: some correct and some wrong predictions.

    Nothing is written for a model that is not a classifier. A failure only causes a warning,
    because the run is over, and its model is saved.

    Args:
        model: a copy of the model outside of any strategy; None: there is none.
        data: the data on which it was trained and evaluated.
        folder: the worker's own folder.
    """
    try:
        (folder / FILE).unlink(missing_ok=True)
        if model is None or not isinstance(data.test, Examples) or not _fits(data):
            return
        found = _predicted(model, data.test, int(data.num_classes or 0))
        if found is None:
            return
        document = {**found, "classes": data.class_names}
        write_whole(folder / FILE, json.dumps(document).encode(), durable=False)
    except Exception as error:  # noqa: BLE001  a user's own model may raise anything
        log.warning("%s was not written: %s", FILE, str(error).partition("\n")[0])


def _fits(data: DataSet) -> bool:
    """Tell whether there are classes, one for each example, and few enough to show."""
    is_one_each = data.test.labels.ndim == 1 and data.test.labels.dtype.kind in "iu"
    return is_one_each and data.num_classes is not None and 1 < data.num_classes <= MAX_CLASSES


def _predicted(model: keras.Model, test: Examples, classes: int) -> dict[str, Any] | None:
    """Return the matrix and the pictures; None if the outputs are not one number per class."""
    matrix = np.zeros((classes, classes), np.int64)
    pictures: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    for rows, inputs, outputs in _batches(model, test):
        if outputs.ndim != OUTPUT_RANK or outputs.shape[1] != classes:
            return None
        labels, said = test.labels[rows].astype(int), outputs.argmax(axis=1)
        np.add.at(matrix, (labels, said), 1)
        for label, one, probability, content in zip(
            labels, said, _probabilities(outputs), inputs, strict=True
        ):
            chosen = pictures[bool(label == one)]
            if len(chosen) < SHOWN and (picture := _png(content)):
                given = {"label": int(label), "said": int(one), "png": picture}
                chosen.append({**given, "probability": round(float(probability), 4)})
    shown = [*pictures[False], *pictures[True]]
    counts = {"examples": int(matrix.sum()), "total": len(test)}
    return {**counts, "matrix": matrix.tolist(), "pictures": shown}


def _batches(
    model: keras.Model, test: Examples
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the rows of some examples, their inputs and the model's outputs, until time is up."""
    until, take = time.monotonic() + MAX_SECONDS, test.taker()
    order = np.random.default_rng(0).permutation(len(test))
    for first in range(0, len(order), BATCH):
        rows = order[first : first + BATCH]
        inputs = take(tf.constant(rows))
        yield rows, inputs.numpy(), np.asarray(model(inputs, training=False), np.float64)
        if time.monotonic() > until:
            return


def _probabilities(outputs: np.ndarray) -> np.ndarray:
    """Return each prediction's probability, [n], from probabilities or logits, [n, classes]."""
    if (outputs >= 0).all() and np.allclose(outputs.sum(axis=1), 1.0, atol=1e-3):
        return np.asarray(outputs.max(axis=1))
    shares = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return np.asarray(1.0 / shares.sum(axis=1))


def _png(content: np.ndarray) -> str | None:
    """Return a picture, float32 [height, width, channels] from 0 to 1, as PNG in base64."""
    if content.ndim != PICTURE_RANK or content.shape[2] not in CHANNELS:
        return None
    if content.min() < 0 or content.max() > 1:
        return None
    pixels = (content * 255).round().astype(np.uint8)
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    image.thumbnail((MAX_PIXELS, MAX_PIXELS))
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()
