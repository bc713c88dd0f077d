"""The trained model on disk: a .keras file and a SavedModel, whole or not at all."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np

from cluster_trainer.files import UNFINISHED, sync_file, sync_folder, sync_tree

KERAS_FILE = "model.keras"
SAVED_MODEL = "saved_model"
log = logging.getLogger("trainer")


def save_copy(
    model: keras.Model, build: Callable[[], keras.Model], values: list[np.ndarray], folder: Path
) -> None:
    """Write a trained model from a copy that knows nothing of a strategy; see `save`.

    Where there is no such copy, model.keras alone is written, from the model itself.

    Args:
        model: that was trained, under any strategy.
        build: makes another of its kind; called outside of any strategy's scope.
        values: its weights.
        folder: where to.
    """
    try:
        copy = build()
        copy.set_weights(values)
    except (AttributeError, TypeError, ValueError, NotImplementedError) as error:
        log.warning("there is no saved_model/, since no copy of the model can be made: %s", error)
        save_keras_file(model, folder)
    else:
        save(copy, folder)


def save(model: keras.Model, folder: Path) -> None:
    """Write `model` to `folder` as model.keras and saved_model/, replacing earlier ones.

    `model` must have been built outside of any strategy, so that what is saved knows of none.
    Each is written under another name first: a run that is killed leaves no half a model, and
    neither does a loss of power after the run was marked as done.
    A folder that is missing is made.
    """
    save_keras_file(model, folder)
    unfinished_folder = folder / (UNFINISHED + SAVED_MODEL)
    shutil.rmtree(unfinished_folder, ignore_errors=True)
    model.export(unfinished_folder, format="tf_saved_model", verbose=False)
    sync_tree(unfinished_folder)
    shutil.rmtree(folder / SAVED_MODEL, ignore_errors=True)
    # Not rename: a bucket that is mounted as a folder may know no renaming of folders, which move
    # replaces by copying (Cloud Storage FUSE's rename-dir-limit is 0 unless it is set).
    shutil.move(unfinished_folder, folder / SAVED_MODEL)
    sync_folder(folder)


def save_keras_file(model: keras.Model, folder: Path) -> None:
    """Write `model` to `folder` as model.keras; see `save`."""
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / (UNFINISHED + KERAS_FILE)
    model.save(unfinished)
    sync_file(unfinished)
    unfinished.replace(folder / KERAS_FILE)
    sync_folder(folder)
