"""Prepares a TFDS set once, in one process, while the others that share the directory wait.

TFDS has no lock: if two processes prepare the same set, one of them fails at its last rename. To
prepare a set by hand, run `python -m trainer prepare NAME [DIRECTORY]` in a container of the image.
"""

import json
import logging
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds
from tensorflow_datasets.core.download import downloader
from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

from cluster_trainer.data.preparing.lock import alone
from cluster_trainer.data.preparing.progress import progress
from cluster_trainer.problems import ConfigurationError, ExitCode, Problem
from cluster_trainer.settings.names import data_sets as names

log = logging.getLogger("trainer")

# Without a network, TFDS's own 10 retries take three and a half minutes (measured).
downloader.MAX_RETRIES = 5
SAMPLE_MARK = "SAMPLE, not the original"
INFO_FILE = "dataset_info.json"
ERRORS = (
    tfds.core.DatasetNotFoundError,
    tfds.download.DownloadError,
    NonMatchingChecksumError,
    AssertionError,  # TFDS's own errors, which contain sentences
    OSError,
    ValueError,
)


def prepare(name: str, directory: Path, say: Callable[[str], None]) -> Path:
    """Prepare a set in TFDS's `directory`, unless it is already there; return the set's own folder.

    `say` gets the progress every few seconds.

    Raises:
        ConfigurationError: TFDS does not know the set, or it cannot be prepared here.
    """
    try:
        builder = tfds.builder(name, data_dir=str(directory))
        folder = Path(builder.data_dir)
        if not folder.exists():
            prepare_builder(builder, directory, say)
    except ERRORS as error:
        raise _not_prepared(name, directory, error) from error
    return folder


def is_sample(folder: Path) -> bool:
    """Tell whether a prepared set was made by `make data-sample`.

    The description is read from the file, because TFDS takes that of a known set from its code.
    """
    description = json.loads((folder / INFO_FILE).read_text()).get("description", "")
    return bool(description.startswith(SAMPLE_MARK))


def prepare_builder(
    builder: Any,
    directory: Path,
    say: Callable[[str], None],
    config: tfds.download.DownloadConfig | None = None,
) -> None:
    """Prepare a builder's set, unless another process does so first; see `prepare`."""

    def say_waiting() -> None:
        waiting = f"waiting for another container that prepares {builder.name} in {directory}"
        log.info(waiting, extra={"is_own": True})
        say(waiting)

    directory.mkdir(parents=True, exist_ok=True)
    with alone(directory / f".preparing-{builder.name}.lock", say_waiting):
        if Path(builder.data_dir).exists():
            return
        downloads = directory / "downloads" / builder.name
        _remove_leftovers(Path(builder.data_dir), downloads)
        what = f"preparing {builder.name} in {directory}"
        log.info(what, extra={"is_own": True})
        tfds.disable_progress_bar()
        with progress(builder, downloads, lambda how_far: say(f"{what}: {how_far}")):
            builder.download_and_prepare(download_config=config)
        log.info("prepared %s", builder.name, extra={"is_own": True})


def _remove_leftovers(made: Path, downloads: Path) -> None:
    """Remove incomplete files of a killed preparation, by TFDS's own names."""
    for folder in (*made.parent.glob(f"incomplete.*_{made.name}"), *downloads.glob("*.tmp.*")):
        log.info("removing %s, which was left half written", folder)
        shutil.rmtree(folder)


def _not_prepared(name: str, directory: Path, error: Exception) -> ConfigurationError:
    accepted = f"a set that is in {directory} or can be prepared there"
    # If TFDS knows no such set, the error lists all known sets.
    advice = f"TensorFlow Datasets says: {str(error).partition(chr(10))[0]}"
    urls = _urls_of(name)
    if urls:
        advice = (
            f"It is downloaded from {', '.join(urls)}. {advice}. Without that network, copy the "
            f"folder {names.builder_name(name)} from a machine that has prepared it"
        )
        if names.builder_name(name) in names.SAMPLES:
            advice += ", or make a small sample with `make data-sample`"
        advice += "."
    return ConfigurationError([Problem(names.VARIABLE, name, accepted, advice)])


def _urls_of(name: str) -> list[str]:
    try:
        return list(tfds.builder(name).url_infos or {})[:3]
    except ERRORS:
        return []


def main(name: str, directory: str = "/data") -> int:
    """Prepare a set by hand; return the exit code."""
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    log.setLevel(logging.INFO)
    folder = Path(directory)
    try:
        made = prepare(name, folder, log.info)
    except ConfigurationError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return ExitCode.BAD_CONFIGURATION
    info = tfds.builder(name, data_dir=directory).info
    splits = ", ".join(f"{split}: {part.num_examples:,}" for split, part in info.splits.items())
    log.info("%s is in %s (%s)", info.full_name, made, splits)
    if is_sample(made):
        print(_sample_there(name, made), file=sys.stderr)  # noqa: T201
        return ExitCode.BAD_CONFIGURATION
    return ExitCode.DONE


def _sample_there(name: str, folder: Path) -> str:
    return (
        f"{names.VARIABLE}: received {name}, and {folder} holds a sample that `make data-sample` "
        "has made. Remove that folder to prepare the original."
    )
