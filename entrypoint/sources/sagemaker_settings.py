"""Amazon SageMaker: the folders and the hyper-parameters of a training job.

Sources: as for sagemaker.py, and src/sagemaker_training/params.py of the SageMaker training toolkit
for SageMaker's own hyper-parameters.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from entrypoint.errors import ConfigurationError, Problem, all_of, raise_any
from entrypoint.settings.environ import Environ, Value
from entrypoint.settings.environment_variable import TRAINER_PREFIX
from entrypoint.sources.sagemaker import (
    AS_ROOT,
    is_here,
    may_exist,
    parse_value,
    path_of,
    read_object,
)

MODEL = "opt/ml/model"
OUTPUT = "opt/ml/output/data"
FAILURE = "opt/ml/output/failure"
CHANNELS = "opt/ml/input/data"
CHANNEL_CONFIG = "opt/ml/input/config/inputdataconfig.json"
HYPERPARAMETERS = "opt/ml/input/config/hyperparameters.json"

CHANNEL_PREFIX = "SM_CHANNEL_"
TRAINING_CHANNELS = ("training", "train", "data")
HYPERPARAMETER_PREFIX = "SM_HP_"
ITS_OWN = ("default_user_module_name", "mp_parameters")
"""Hyper-parameters that SageMaker adds. Others have the prefix `sagemaker_` or `_`."""

_PLATFORM = "SageMaker"
_CHANNEL = re.compile("[A-Za-z0-9_-][A-Za-z0-9._-]*")


def folders(environ: Environ) -> Mapping[str, Value]:
    """Return the job's folders for the model and the results. Raises ConfigurationError."""
    if not is_here(environ):
        return {}
    chosen: Mapping[str, Value] = {}
    with suppress(ConfigurationError):  # already reported as a problem
        chosen = hyperparameters(environ)
    defaults = {
        "TRAINER_MODEL_DIR": ("SM_MODEL_DIR", MODEL),
        "TRAINER_RUN_DIR": ("SM_OUTPUT_DATA_DIR", OUTPUT),
    }
    needed = [name for name in defaults if not environ.given(name) and name not in chosen]
    values = all_of(*(partial(_folder, environ, name, *defaults[name]) for name in needed))
    return dict(zip(needed, values, strict=True))


def failure_file(environ: Environ) -> Mapping[str, Value]:
    """Return the job's file for the reason of a failure."""
    if not is_here(environ):
        return {}
    return {"FAILURE_FILE": Value(str(path_of(environ, FAILURE)), _PLATFORM)}


def _folder(environ: Environ, ours: str, theirs: str, default: str) -> Value:
    """Return the folder in SageMaker's variable `theirs`, otherwise the documented one.

    Raises ConfigurationError if the folder cannot be written.
    """
    text = environ.get(theirs)
    folder = Value(text, theirs) if text else Value(str(path_of(environ, default)), _PLATFORM)
    writable = os.access(folder.text, os.W_OK | os.X_OK)
    if writable or not may_exist(Path(folder.text)):
        return folder
    accepted = f"a folder that user id {os.geteuid()} can write to"
    raise ConfigurationError([Problem(f"{ours} ({folder.source})", folder.text, accepted, AS_ROOT)])


def data(environ: Environ) -> Mapping[str, Value]:
    """Return the folder of the training data; nothing if it is ambiguous.

    Raises ConfigurationError.
    """
    if not is_here(environ):
        return {}
    given = _with_prefix(environ, CHANNEL_PREFIX).items()
    channels = {name.lower(): value for name, value in given} or _configured_channels(environ)
    candidates = channels if len(channels) == 1 else TRAINING_CHANNELS
    name = next((name for name in candidates if name in channels), None)
    return {} if name is None else {"TRAINER_DATA_DIR": channels[name]}


def _with_prefix(environ: Environ, prefix: str) -> dict[str, Value]:
    """Return the variables with this prefix; keys are the rest of the names."""
    return {
        name.removeprefix(prefix): Value(value.text, name)
        for name, value in environ.values.items()
        if name.startswith(prefix)
    }


def _configured_channels(environ: Environ) -> dict[str, Value]:
    path = path_of(environ, CHANNEL_CONFIG)
    if not may_exist(path):
        return {}
    return {
        channel: Value(str(path_of(environ, f"{CHANNELS}/{channel}")), str(path))
        for channel, details in read_object(path).items()
        if _CHANNEL.fullmatch(channel)
        and isinstance(details, dict)
        and details.get("TrainingInputMode") != "Pipe"  # a channel of that mode is not a folder
    }


def hyperparameters(environ: Environ) -> Mapping[str, Value]:
    """Return the hyper-parameters as the trainer's variables: x becomes TRAINER_X.

    Raises ConfigurationError.
    """
    if not is_here(environ):
        return {}
    single = _with_prefix(environ, HYPERPARAMETER_PREFIX)
    text = environ.get("SM_HPS")
    path = path_of(environ, HYPERPARAMETERS)
    together: dict[str, Value] = {}
    if text is not None:
        together = _texts("SM_HPS", parse_value(environ.label("SM_HPS"), text))
    elif not single and may_exist(path):
        together = _texts(str(path), read_object(path))
    for source in (together, single):
        raise_any(_spelled_twice(_settings(source)))
    # SageMaker sets SM_HP_EPOCHS for Epochs: the two names differ, and are one spelling
    overridden = {variable_of(name) for name in single}
    rest = {name: value for name, value in together.items() if variable_of(name) not in overridden}
    return {variable_of(name): value for name, value in _settings({**rest, **single}).items()}


def _settings(values: Mapping[str, Value]) -> dict[str, Value]:
    """Return the hyper-parameters that are meant for the trainer."""
    return {name: value for name, value in values.items() if _is_a_setting(name, value.text)}


def _spelled_twice(values: Mapping[str, Value]) -> Iterator[Problem]:
    """Yield a problem for two names of one variable, such as learning-rate and learning_rate.

    Args:
        values: the hyper-parameters of one source, by their names there.
    """
    first: dict[str, str] = {}
    for name, value in values.items():
        other = first.setdefault(variable_of(name), name)
        if other != name:
            before = values[other]
            is_document = before.source == value.source
            names = f"{other} and {name}" if is_document else f"and {value.source}"
            received = f"{before.text} and {value.text}"
            yield Problem(f"{before.source} {names}", received, "one of the two")


def _texts(source: str, values: Mapping[str, object]) -> dict[str, Value]:
    """Return JSON values as texts of variables. Raises ConfigurationError.

    In the file all values are strings. Those that an SDK wrote contain JSON.
    """
    found = {name: Value(_text(value), source) for name, value in values.items()}
    bad = [name for name, value in found.items() if not _fits(value.text)]
    if bad:
        accepted = "text without NUL bytes or lone surrogates"
        raise ConfigurationError(
            Problem(f"{source} {name}", found[name].text, accepted) for name in bad
        )
    return found


def _text(value: object) -> str:
    """Return a JSON value as the text that a person would type."""
    if not isinstance(value, str):
        return "" if value is None else json.dumps(value)
    if len(value) > 1 and value[0] == value[-1] == '"':
        try:
            inner = json.loads(value)
        except ValueError:
            return value
        return inner if isinstance(inner, str) else value
    return value


def _fits(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _is_a_setting(name: str, text: str) -> bool:
    """Whether a hyper-parameter is meant for the trainer; SageMaker adds some of its own."""
    key = name.lower()
    ours = not key.startswith(("sagemaker_", "_")) and key not in ITS_OWN
    # SageMaker's TensorFlow estimator passes the bucket in this way. The trainer writes to a
    # folder.
    is_bucket = key == "model_dir" and text.startswith("s3://")
    return bool(key and text) and ours and not is_bucket


def variable_of(hyperparameter: str) -> str:
    """Return the trainer's variable: TRAINER_LEARNING_RATE for learning-rate or learning_rate."""
    return TRAINER_PREFIX + re.sub("[^A-Z0-9]", "_", hyperparameter.upper())


SETTINGS = (hyperparameters, data, folders, failure_file)
"""Separate functions, so that a wrong hyper-parameter does not hide FAILURE_FILE. Hyper-parameters
come first: `model_dir` wins over SageMaker's own folder."""
