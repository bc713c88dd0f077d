"""What a trained classifier says of test examples, read back from predictions.json."""

import re
from dataclasses import dataclass
from typing import Any

from cluster_trainer.report.reading import Json, ReadError, is_count, is_number, shown

PNG = re.compile(r"[A-Za-z0-9+/=]+")


@dataclass(frozen=True)
class Picture:
    """A test example: PNG in base64, its class, what the model said, and how sure it was."""

    png: str
    label: str
    said: str
    probability: str


@dataclass(frozen=True)
class Predicted:
    """What was said of test examples.

    Attributes:
        matrix: [classes][classes], how many of a class (row) were taken for which (column).
        names: of the classes.
        total: how many examples there are to test.
        pictures: some that were right, and some that were wrong.
    """

    matrix: list[list[int]]
    names: list[str]
    total: int
    pictures: list[Picture]


def predicted(found: Json) -> Predicted:
    """Read a document.

    Raises:
        ReadError: it is not what a run writes.
    """
    matrix = found.get("matrix")
    _demand(_is_square(matrix), "matrix", matrix, "as many whole numbers a row as rows")
    size = len(found["matrix"])
    given = found.get("classes")
    names = [str(index) for index in range(size)] if given is None else given
    is_named = isinstance(names, list) and all(isinstance(one, str) for one in names)
    _demand(is_named and len(names) == size, "classes", given, f"null, or {size} names")
    _demand(is_count(found.get("total")), "total", found.get("total"), "a whole number from 0")
    pictures = found.get("pictures")
    _demand(isinstance(pictures, list), "pictures", pictures, "a list")
    shown_ones = [_picture(one, names) for one in found["pictures"]]
    return Predicted(found["matrix"], names, found["total"], shown_ones)


def _picture(one: Any, names: list[str]) -> Picture:
    """Read a picture.

    Raises:
        ReadError: it is none.
    """
    accepted = "png, a label and what was said, each a class, and a probability"
    _demand(isinstance(one, dict), "a picture", one, accepted)
    classes, sure = (one.get("label"), one.get("said")), one.get("probability")
    are_classes = all(is_count(index) and index < len(names) for index in classes)
    is_png = isinstance(one.get("png"), str) and PNG.fullmatch(one["png"])
    is_one = are_classes and is_png and is_number(sure) and 0 <= sure <= 1
    _demand(bool(is_one), "a picture", one, accepted)
    label, said = names[one["label"]], names[one["said"]]
    return Picture(one["png"], label, said, f"{100 * sure:.0f} %")


def _is_square(matrix: Any) -> bool:
    if not isinstance(matrix, list) or not matrix:
        return False
    rows = (isinstance(row, list) and len(row) == len(matrix) for row in matrix)
    return all(rows) and all(is_count(number) for row in matrix for number in row)


def _demand(holds: bool, name: str, value: Any, accepted: str) -> None:  # noqa: FBT001
    """Raise ReadError unless something holds."""
    if not holds:
        raise ReadError(f"{name}: received {shown(value)}; accepted: {accepted}")
