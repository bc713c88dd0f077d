"""The formats of a run's files. Members may be null, which means unknown."""

from math import isfinite
from typing import Annotated, Any, Required

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, model_validator
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

from cluster_trainer.results.journal import END_OF_TIME

MAX_COUNT, MAX_NUMBER = 2**53, 1e100
"""The largest numbers that are accepted, so that drawings can add and multiply them."""
STRICT = ConfigDict(strict=True, extra="allow")
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Seconds = Annotated[float, Field(ge=0, le=MAX_NUMBER)]


def is_number(value: Any) -> bool:
    """Tell whether a value is a number that can be drawn."""
    return _is_any_number(value) and abs(value) <= MAX_NUMBER


def is_too_large(value: Any) -> bool:
    """Tell whether a value is a number that is too large to be drawn."""
    return _is_any_number(value) and abs(value) > MAX_NUMBER


def _is_any_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _metric(value: Any) -> Any:
    """Return a metric; None if it is not finite."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if value is None or isinstance(value, list) or is_number(value):
        return value
    raise ValueError("a metric is a number, an array or null")


def _of_an_epoch(line: dict[str, Any]) -> dict[str, Any]:
    epoch = line.get("epoch")
    if not isinstance(epoch, int) or not 0 <= epoch <= MAX_COUNT:
        raise ValueError("epoch: Input should be a whole number from 0")
    return line


class _Begun(TypedDict, total=False):
    """The common members of result.json and about.json."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    strategy: str | None
    workers: Count | None
    replicas: Count | None
    settings: dict[str, Any] | None
    versions: dict[str, Any] | None
    script: dict[str, Any] | None


class _About(_Begun, total=False):
    fit: dict[str, Any] | None


class _Result(_Begun, total=False):
    status: str | None
    reason: str | None
    dataset: str | None
    steps: Count | None
    epochs: Count | None
    seconds: Seconds | None


class _Event(TypedDict, total=False):
    __pydantic_config__ = STRICT  # type: ignore[misc]
    time: Required[Annotated[float, Field(ge=0, le=END_OF_TIME)]]
    state: str | None
    detail: str | None
    by: str | None
    fit: str | None
    restarts: Count | None
    epoch: Count | None
    step: Count | None
    seconds: dict[str, Seconds] | None
    network: str | None


class _Cluster(TypedDict):
    __pydantic_config__ = STRICT  # type: ignore[misc]
    settings: dict[str, str]


@dataclass(frozen=True, config=STRICT)
class Picture:
    """A test example: PNG in base64, its class, the predicted class, and that one's probability."""

    png: Annotated[str, Field(pattern=r"^[A-Za-z0-9+/=]+$")]
    label: Count
    said: Count
    probability: Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, config=STRICT)
class Predicted:
    """A trained classifier's predictions of test examples.

    Attributes:
        matrix: the confusion matrix, [classes][classes]: counts by true class (row) and predicted
            class (column).
        total: the number of test examples.
        pictures: some examples that were predicted right, and some that were wrong.
        classes: the names of the classes; None: they have only numbers.
    """

    matrix: Annotated[list[list[Count]], Field(min_length=1)]
    total: Count
    pictures: list[Picture]
    classes: list[str] | None = None

    @property
    def names(self) -> list[str]:
        """The names of the classes."""
        return self.classes or [str(index) for index in range(len(self.matrix))]

    @model_validator(mode="after")
    def _fits_together(self) -> "Predicted":
        size = len(self.matrix)
        if any(len(row) != size for row in self.matrix):
            raise ValueError("matrix: there should be as many numbers in a row as rows")
        if self.classes is not None and len(self.classes) != size:
            raise ValueError(f"classes: there should be {size} names, or null")
        if any(max(one.label, one.said) >= size for one in self.pictures):
            raise ValueError("pictures: a label should be a class")
        return self


_Metric = Annotated[Any, AfterValidator(_metric)]
RESULT, ABOUT = TypeAdapter(_Result), TypeAdapter(_About)
EVENT, CLUSTER = TypeAdapter(_Event), TypeAdapter(_Cluster)
METRICS: TypeAdapter[Any] = TypeAdapter(Annotated[dict[str, _Metric], AfterValidator(_of_an_epoch)])
PREDICTED = TypeAdapter(Predicted)
