"""The accepted values of --storage and --machine, for each kind of file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from entrypoint.errors import Problem
from entrypoint.export.pods import KINDS as WITH_CLAIM

STORAGE, MACHINE = "--storage", "--machine"


@dataclass(frozen=True)
class Form:
    """The accepted values of an option, for one kind of file."""

    pattern: str
    accepted: str
    default: str | None
    """None if the option is required."""

    def value(self, text: str) -> str:
        """Return the given text, or the default if it is empty."""
        return text or self.default or ""

    def problems(self, option: str, text: str) -> Iterator[Problem]:
        """Yield a problem if the text is missing or not accepted."""
        if not text and self.default is None:
            yield Problem(option, None, self.accepted)
        elif text and not (text.isprintable() and re.fullmatch(self.pattern, text)):
            yield Problem(option, text, self.accepted)


_CLAIM = Form(
    r"([a-z0-9]([-.a-z0-9]*[a-z0-9])?:)?[1-9][0-9]*(Mi|Gi|Ti)",
    "a size, or a storage class and a size: 50Gi, nfs:50Gi",
    "10Gi",
)
_FOLDER = Form("/[^:]*", "the absolute path of a folder, without colons", "")
_BUCKET = "[a-z0-9][-._a-z0-9]{1,61}[a-z0-9]"
_PATH = "(/[-._a-zA-Z0-9]+)*"

_STORAGE: Mapping[str, Form] = {
    **dict.fromkeys(WITH_CLAIM, _CLAIM),
    "sagemaker": Form(f"s3://{_BUCKET}{_PATH}", "a path in a bucket: s3://bucket/folder", None),
    "skypilot": Form(_BUCKET, "the name of a bucket, which SkyPilot creates if needed", None),
    "vertex": Form(f"gs://{_BUCKET}{_PATH}", "a path in a bucket: gs://bucket/folder", None),
}

_WITHOUT_GPUS: Mapping[str, Form] = {
    "sagemaker": Form("ml[.][a-z0-9.-]+", "an instance type: ml.c5.2xlarge", "ml.c5.2xlarge"),
    "vertex": Form("[a-z0-9-]+", "a machine type: n1-standard-8", "n1-standard-8"),
}
_WITH_GPUS: Mapping[str, Form] = {
    "sagemaker": Form("ml[.][a-z0-9.-]+", "an instance type with GPUs: ml.g5.xlarge", None),
    "skypilot": Form("[A-Za-z0-9-]+", "the name of a GPU in `sky show-gpus`: L4", None),
    "vertex": Form(
        "[a-z0-9-]+:[A-Z0-9_]+",
        "a machine type and its accelerator: n1-standard-8:NVIDIA_TESLA_T4",
        None,
    ),
}
_NO_MACHINE = Form("(?!)", "no value: this kind of file names no machines", "")


def storage_of(kind: str) -> Form:
    """Return the accepted values of --storage."""
    return _STORAGE.get(kind, _FOLDER)


def machine_of(kind: str, *, has_gpus: bool) -> Form:
    """Return the accepted values of --machine."""
    return (_WITH_GPUS if has_gpus else _WITHOUT_GPUS).get(kind, _NO_MACHINE)
