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
        time: the number of earlier calls from the same lines in this start.
        same: how many of these had the same loop variables and parameters.
        order: the number of earlier fits in this process.
        seed: the script's seed, from `keras.utils.set_random_seed`; None: it has set none.
        began: a summary of the model's weights before the call; None: it had none.
        arguments: the number of the script's arguments, and a digest of them.
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
    """A saved fit of this or an earlier start, with the number of its folder, from 1."""

    number: int
    call: Call


@dataclass(frozen=True)
class Choice:
    """The saved fit from which a call resumes.

    Attributes:
        number: the number of its folder.
        doubts: the parts that suggest that it may be a different fit, in words. An interrupted fit
            is resumed in spite of them, with a warning. The result of a finished fit is refused,
            because it might belong to another training.
    """

    number: int
    doubts: tuple[str, ...] = ()


def choose(mine: Call, kept: Sequence[Kept], unnoted: Collection[int] = ()) -> Choice | None:
    """Return the saved fit that a call resumes; None: the call is a new fit.

    These rules are tried in order, and the first match is returned:

    1. The line, its callers' lines, loop variables, parameters and the names of functions are the
       same, and so is the number of earlier calls. Where these do not identify a call, the weights
       must be alike, too.
    2. As 1., with any number of earlier calls, if the model has the weights with which the saved
       fit began. So a script that skips earlier fits finds the right one.
    3. As 1., but the weights differ.
    4. The lines and the number of earlier calls are the same. Only parameters differ that may
       change with each start, such as a folder with a date, or what functions hold.
    5. The saved fit's line is no longer in the script, and as many fits were called before it. So a
       line may be edited.
    6. An earlier version, which did not record calls, has saved a fit with this number.

    Args:
        mine: the call.
        kept: the saved fits from which no call of this start has resumed.
        unnoted: the numbers of other saved fits, whose calls were not recorded.
    """
    there = [one for one in kept if one.call.place.has_lines_of(mine.place)]
    same = [one for one in there if _are_same(mine, one.call, "numbers", "functions")]
    exact = [one for one in same if _are_same(mine, one.call, "words", "held")]
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


def _are_same(mine: Call, other: Call, *names: str) -> bool:
    """Tell whether some values of the places are the same, if both calls recorded them."""
    pairs = [(getattr(mine.place, name), getattr(other.place, name)) for name in names]
    return all(one == another for one, another in pairs if None not in (one, another))


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
    texts = _differing(mine.place.words, other.place.words)
    held = _differing(mine.place.held or {}, other.place.held or {})
    told = [f"the parameter {', '.join(texts)} of its function"] if texts else []
    told += [f"what the function {', '.join(held)} holds"] if held else []
    return " and ".join(told)


def _differing(mine: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    names = sorted({*mine} | {*other})
    return [name.partition(" ")[0] for name in names if mine.get(name) != other.get(name)]


def read(folder: Path) -> Call | None:
    """Return the call that a folder's fit belongs to; None: it is not recorded, or unreadable."""
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
    """Return the names of script files that both calls know, and whose text has changed."""
    both = mine.texts.keys() & other.texts.keys()
    return sorted(name for name in both if mine.texts[name] != other.texts[name])
