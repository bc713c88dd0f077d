"""Decides to which call of `fit` a folder's checkpoints belong, and where a call resumes."""

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cluster_trainer.files import make_folder, write_whole
from cluster_trainer.fits.identity.place import Line, Place
from cluster_trainer.fits.identity.weights import Summary, are_alike

FILE = "call.json"
log = logging.getLogger("trainer")


@dataclass(frozen=True)
class Call:
    """One call of `fit`.

    Attributes:
        place: its place in the script.
        time: how many calls in the same start were there before it.
        same: how many of these had the same loop variables and parameters.
        order: how many fits the process had called before.
        seed: of the script, as by `keras.utils.set_random_seed`; None: it has set none.
        began: the model's weights when it was called; None: it had none yet.
        arguments: a digest of the script's arguments.
        texts: a digest of each file of the script, by name.
    """

    place: Place
    time: int = 0
    same: int = 0
    order: int = 0
    seed: int | None = None
    began: Summary | None = None
    arguments: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Return it as a file's content."""
        return (json.dumps(asdict(self), indent=1) + "\n").encode()

    @classmethod
    def from_json(cls, content: bytes) -> "Call":
        """Read the content from `to_json`.

        Raises:
            ValueError: it is something else.
        """
        try:
            document = json.loads(content)
            place = document.pop("place")
            lines = tuple(Line(**line) for line in place.pop("lines"))
            return cls(place=Place(lines=lines, **place), **document)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not what is written to {FILE}") from error


@dataclass(frozen=True)
class Kept:
    """A fit of this or an earlier start, by the number of its folder, from 1."""

    number: int
    call: Call


@dataclass(frozen=True)
class Choice:
    """The saved fit from which a call resumes.

    Attributes:
        number: of its folder.
        doubts: what may be another fit's, in words. One that was interrupted is gone on with all
            the same, and a warning says so. One that had ended is not: its weights would be given
            for another training.
    """

    number: int
    doubts: tuple[str, ...] = ()


def choose(mine: Call, kept: Sequence[Kept], unnoted: Collection[int] = ()) -> Choice | None:
    """Return the kept fit that a call is, or None if it is a new one.

    The first that fits:

    1. Its line, its callers' lines, its loop variables and parameters are the same, and it was
       called as often.
    2. As 1., but called more or less often, and the model has the weights that this fit began with.
       So a script that skips earlier fits finds the right one.
    3. As 1., but the weights speak against it.
    4. The lines are the same, it was called as often, and only parameters that may be another at
       each start differ, such as a folder with a date.
    5. Its line is no longer in the script, and as many fits were called before it. So a line may
       be edited.
    6. It was written by a version that did not note its calls, as the fit of that number.

    Args:
        mine: the call.
        kept: the fits from which no call of this start has resumed.
        unnoted: the numbers of others, whose folders do not say which calls they are.
    """
    there = [one for one in kept if one.call.place.has_lines_of(mine.place)]
    same = [one for one in there if one.call.place.numbers == mine.place.numbers]
    exact = [one for one in same if one.call.place.words == mine.place.words]
    as_often = [
        Choice(one.number, _doubts(mine, one.call)) for one in exact if one.call.same == mine.same
    ]
    certain = [one for one in as_often if not one.doubts]
    alike = [
        Choice(one.number) for one in exact if mine.began and are_alike(mine.began, one.call.began)
    ]
    others = (_of_other_words(mine, same), _edited(mine, kept), _of_number(mine, unnoted))
    found = [*certain, *alike, *as_often, *(one for one in others if one)]
    return found[0] if found else None


def _of_other_words(mine: Call, same: Sequence[Kept]) -> Choice | None:
    for one in same:
        if one.call.time == mine.time:
            return Choice(one.number, (_other_words(mine, one.call), *_doubts(mine, one.call)))
    return None


def _edited(mine: Call, kept: Sequence[Kept]) -> Choice | None:
    for one in kept:
        place = one.call.place
        if place.lines and not place.is_in_source() and one.call.order == mine.order:
            return Choice(one.number, (f"the line that calls it, which was `{place.shown}`",))
    return None


def _of_number(mine: Call, unnoted: Collection[int]) -> Choice | None:
    number = mine.order + 1
    if number not in unnoted:
        return None
    log.warning(
        "the checkpoints of fit %d do not record its call: they are taken for this fit", number
    )
    return Choice(number)


def _doubts(mine: Call, other: Call) -> tuple[str, ...]:
    """Return the doubts about a fit if its place does not identify it."""
    is_certain = mine.place.is_certain and other.place.is_certain
    if is_certain or are_alike(mine.began, other.began):
        return ()
    return ("the model's weights at its beginning",)


def _other_words(mine: Call, other: Call) -> str:
    names = sorted({*mine.place.words} | {*other.place.words})
    differing = [
        name.partition(" ")[0]
        for name in names
        if mine.place.words.get(name) != other.place.words.get(name)
    ]
    return f"the parameter {', '.join(differing)} of its function"


def read(folder: Path) -> Call | None:
    """Return the call that a fit's folder belongs to; None if it is not recorded."""
    with suppress(OSError, ValueError):
        return Call.from_json((folder / FILE).read_bytes())
    return None


def write(call: Call, folder: Path) -> None:
    """Write the identity of a folder's fit. If the disk is full, a warning says so."""
    try:
        make_folder(folder)
        write_whole(folder / FILE, call.to_json(), durable=True)
    except OSError as error:
        log.warning("%s of %s could not be written: %s", FILE, folder.name, error)


def changed_files(mine: Call, other: Call) -> list[str]:
    """Return the script's files whose text has changed; files of one call alone do not count."""
    both = mine.texts.keys() & other.texts.keys()
    return sorted(name for name in both if mine.texts[name] != other.texts[name])
