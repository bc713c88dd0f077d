"""Describes a mistake in a setting: the received value, and the accepted ones."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from cluster_trainer.problems import Problem
from cluster_trainer.settings import validators
from cluster_trainer.settings.names import compiling as compiling_names
from cluster_trainer.settings.names import devices
from cluster_trainer.settings.names.spellings import PREFIX, flag_of, shown_name, variable_of
from cluster_trainer.settings.reading import did_you_mean, without_values

# A day. The kernel gets it in milliseconds, and takes at most 2**31 - 1.
MOST_SILENCE_SECONDS = 86_400
HELP_LISTS = "the flags that --help lists"
A_COUNT = "a whole number, 1 or more"
A_COUNT_OR_0 = "a whole number, 0 or more"
# Texts that pydantic's own messages lack. Values that only this module can judge carry their text
# with the error (see `refuse`).
ACCEPTED = {
    "image_size": A_COUNT,
    "augment": "none, flip, crop or flip_crop",
    "cache": "auto, memory, disk or none",
    "strategy": "auto, none, mirrored or multiworker",
    "logical_cpus": A_COUNT,
    "devices": devices.ACCEPTED,
    "collectives": "auto, tensorflow or ring",
    "wire": "float32 or bfloat16",
    "sync_every": f"auto or {A_COUNT}",
    "silence_seconds": f"a whole number from 1 to {MOST_SILENCE_SECONDS}",
    "epochs": A_COUNT,
    "steps_per_epoch": A_COUNT,
    "per_replica_batch_size": A_COUNT,
    "global_batch_size": A_COUNT,
    "optimizer": compiling_names.OPTIMIZER,
    "loss": compiling_names.LOSS,
    "metrics": compiling_names.METRICS,
    "learning_rate": "a number above 0, at most 1000",
    "learning_rate_schedule": "constant or cosine",
    "lr_scaling": "none, linear or sqrt",
    "lr_scaling_base": A_COUNT,
    "warmup_steps": f"auto or {A_COUNT_OR_0}",
    "precision": "float32, bfloat16 or float16",
    "sync_batch_norm": "true or false",
    "first_batch": "check, refuse or off",
    "jit": "true or false",
    "seed": "a whole number from 0 to 2147483647",
    "steps_per_call": f"auto or {A_COUNT}",
    "threads": f"auto or {A_COUNT}",
    "startup_timeout_seconds": A_COUNT_OR_0,
    "stall_timeout_seconds": f"auto or {A_COUNT_OR_0}",
    "stop_seconds": A_COUNT,
    "checkpoint_steps": A_COUNT_OR_0,
    "resume": "never, auto or must",
    "keep_earlier": A_COUNT_OR_0,
    "tensorboard": "none, scalars or histograms",
    "profile_steps": validators.STEPS,
    "gpus_per_worker": A_COUNT_OR_0,
}


def problems_of(error: ValidationError) -> list[Problem]:
    """Return a problem for each setting that pydantic refuses."""
    by_setting = {str(one["loc"][0]): one for one in error.errors()}
    return [_problem_of(setting, one) for setting, one in by_setting.items()]


def _problem_of(setting: str, error: Any) -> Problem:
    context = error.get("ctx", {})
    accepted = context.get("accepted") or ACCEPTED.get(setting, error["msg"])
    return Problem(shown_name(setting), str(error["input"]), accepted, context.get("advice", ""))


def unknown_variables(environ: Mapping[str, str], settings: Sequence[str]) -> list[Problem]:
    """Return a problem for each TRAINER_ variable that is not a setting."""
    known = [variable_of(setting) for setting in settings]
    unknown = [name for name in environ if name.startswith(PREFIX) and name not in known]
    accepted = "the TRAINER_ variables that docs/reference/settings.md lists"
    # The name is wrong, and the value may be a secret.
    return [Problem(name, "(not shown)", accepted, did_you_mean(name, known)) for name in unknown]


def unknown_settings(given: Mapping[str, Any], settings: Sequence[str]) -> list[Problem]:
    """Return a problem for each name that a script has given, and that is not a setting."""
    accepted = "the settings that docs/reference/settings.md lists, without TRAINER_"
    return [
        Problem(name, str(value), accepted, did_you_mean(name, settings))
        for name, value in given.items()
        if name not in settings
    ]


def unknown_flags(arguments: Sequence[str], settings: Sequence[str]) -> list[Problem]:
    """Return a problem for each flag that is not a setting."""
    known = [flag_of(setting) for setting in settings]
    return [
        Problem("unknown flag", flag, HELP_LISTS, did_you_mean(flag, known))
        for flag in without_values(arguments)
    ]
