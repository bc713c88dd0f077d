"""Checks values that are well formed, and may be wrong for reasons that a type cannot express."""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from pydantic_core import PydanticCustomError

from cluster_trainer.pod import is_in_pod
from cluster_trainer.settings.names import compiling as compiling_names
from cluster_trainer.settings.names import devices, models
from cluster_trainer.settings.reading import did_you_mean

STEPS = "the first and the last step, counted from 1 over all epochs, such as 100-110"


def refuse(accepted: str, advice: str = "") -> PydanticCustomError:
    """Return the error for a value that is well formed but not accepted."""
    return PydanticCustomError("refused", "{accepted}", {"accepted": accepted, "advice": advice})


def _known(
    is_one: Callable[[str], bool], accepted: str, names: Iterable[str] = ()
) -> Callable[[str], str]:
    """Return a function that refuses unknown names, and suggests a similar one of `names`."""

    def known(name: str) -> str:
        if not is_one(name):
            raise refuse(accepted, did_you_mean(name.lower(), names))
        return name

    return known


known_model = _known(models.is_known, models.ACCEPTED, models.BUILT_IN)
known_optimizer = _known(
    compiling_names.is_optimizer, compiling_names.OPTIMIZER, compiling_names.OPTIMIZERS
)
known_loss = _known(compiling_names.is_name, compiling_names.LOSS)


def known_metrics(names_of_metrics: str) -> str:
    """Refuse names that cannot be metrics; return all names, separated by commas."""
    metrics = [one.strip() for one in names_of_metrics.split(",")]
    if not all(map(compiling_names.is_name, metrics)):
        raise refuse(compiling_names.METRICS)
    return ",".join(metrics)


def first_and_last_step(text: str) -> str:
    """Refuse a text that is not FIRST-LAST, two steps in order."""
    found = re.fullmatch("([0-9]{1,18})-([0-9]{1,18})", text, re.ASCII)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise refuse(STEPS)
    return text


def writable_directory(path: Path) -> Path:
    """Refuse a directory that this user cannot create or write; nothing is created here."""
    place = path
    # Path.exists() raises an error if a folder on the way cannot be entered.
    while not os.path.exists(place) and place != place.parent:  # noqa: PTH110
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        what = "cannot be written" if place.is_dir() else "is not a directory"
        who = f"user {os.getuid()}:{os.getgid()}"
        raise refuse(
            f"a directory that {who} can write",
            f"{place} {what}. {_how_to_mount()}",
        )
    return path


def _how_to_mount() -> str:
    """Return advice on how to mount a folder that this user can write."""
    if not is_in_pod():
        return "Mount one with -v and give its owner with --user."
    group = os.getgid()
    return (
        f"Mount a volume there, and set fsGroup: {group} in the pod's securityContext. Some "
        f"storage, such as NFS, ignores fsGroup: make its folder writable for group {group}."
    )


def device_names(text: str) -> str:
    """Refuse invalid devices; return their names in TensorFlow's notation."""
    try:
        return ",".join(devices.parse(text))
    except ValueError as error:
        raise refuse(devices.ACCEPTED, str(error)) from error
