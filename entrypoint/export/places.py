"""Where each kind of file keeps the results, and on which machines it trains."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from entrypoint.errors import Problem
from entrypoint.export.pods import KINDS as WITH_CLAIM

STORAGE, MACHINE = "--storage", "--machine"


@dataclass(frozen=True)
class Form:
    """The form of an option's value for a kind of file."""

    pattern: str
    accepted: str
    default: str | None
    """None if a value must be given."""

    def value(self, text: str) -> str:
        """Return the value, or the default for none."""
        return text or self.default or ""

    def problems(self, option: str, text: str) -> Iterator[Problem]:
        """Yield the problem of a value."""
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
    """Return the form of a kind's storage."""
    return _STORAGE.get(kind, _FOLDER)


def machine_of(kind: str, *, has_gpus: bool) -> Form:
    """Return the form of a kind's machine."""
    return (_WITH_GPUS if has_gpus else _WITHOUT_GPUS).get(kind, _NO_MACHINE)
