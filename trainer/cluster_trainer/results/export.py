"""Writes the trained model: a .keras file and a SavedModel, each complete or absent."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import keras
import numpy as np

from cluster_trainer.files import UNFINISHED, sync_file, sync_folder, sync_tree
from cluster_trainer.private import keras_names

KERAS_FILE = "model.keras"
SAVED_MODEL = "saved_model"
FILES = (KERAS_FILE, SAVED_MODEL)
log = logging.getLogger("trainer")


def save_copy(
    model: keras.Model,
    build: Callable[[], keras.Model],
    values: list[np.ndarray],
    folder: Path,
    *,
    is_alone: bool,
) -> keras.Model | None:
    """Write a trained model from a copy that does not depend on a strategy; see `save`.

    If there is no such copy, and this is the only worker, only model.keras is written, from the
    model itself. With several workers, reading its variables would need all of them. A model that
    cannot be saved causes warnings, and does not end the run, because there are checkpoints.

    Args:
        model: the trained model, under any strategy.
        build: builds an equal model; it is called outside of any strategy's scope.
        values: the trained model's weights.
        folder: the folder for the files.
        is_alone: whether this worker is the only one.

    Returns:
        the copy; None: there is none.

    Raises:
        OSError: the files could not be written.
    """
    try:
        copy = build()
        copy.set_weights(values)
        _adopt(model, copy)
        save(copy, folder)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001  a user's own model may raise anything
        log.warning("no copy of the model could be saved: %s", _first_line(error))
    else:
        return copy
    try:
        if is_alone:
            save_keras_file(model, folder)
            log.warning("%s was written from the model itself; there is no %s", *FILES)
            return None
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001
        log.warning("the model cannot be saved: %s", _first_line(error))
    log.warning("the model was not saved, only its checkpoints")
    return None


def _adopt(model: keras.Model, copy: keras.Model) -> None:
    """Give a copy the layers' other state: vocabularies, and values derived from weights."""
    layers = zip(keras_names.layers_within(model), keras_names.layers_within(copy), strict=True)
    for layer, its_copy in layers:
        if hasattr(layer, "save_assets") and hasattr(layer, "load_assets"):
            with TemporaryDirectory() as folder:
                layer.save_assets(folder)
                its_copy.load_assets(folder)
        if hasattr(its_copy, "finalize_state"):  # such as Normalization after adapt
            its_copy.finalize_state()


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip().partition("\n")[0]


def save(model: keras.Model, folder: Path) -> None:
    """Write `model` to `folder` as model.keras and saved_model/, replacing earlier ones.

    `model` must have been built outside of any strategy, so that the files do not depend on one.
    Each is written under another name first. So neither a killed run, nor a power loss after the
    run was marked as done, leaves an incomplete model. A missing folder is created.
    """
    save_keras_file(model, folder)
    unfinished_folder = folder / (UNFINISHED + SAVED_MODEL)
    shutil.rmtree(unfinished_folder, ignore_errors=True)
    model.export(unfinished_folder, format="tf_saved_model", verbose=False)
    sync_tree(unfinished_folder)
    shutil.rmtree(folder / SAVED_MODEL, ignore_errors=True)
    # A mounted bucket may not support renaming folders (Cloud Storage FUSE's rename-dir-limit is 0
    # unless it is set). There `move` copies.
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
