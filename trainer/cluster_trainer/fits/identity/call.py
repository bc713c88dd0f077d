"""Which call of `fit` a folder's checkpoints belong to, and which folder a call goes on from."""

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cluster_trainer.files import make_folder, write_whole
from cluster_trainer.fits.identity.place import Line, Place
from cluster_trainer.fits.identity.weights import Likeness, Summary, likeness

FILE = "call.json"
log = logging.getLogger("trainer")


@dataclass(frozen=True)
class Call:
    """One call of `fit`.

    Attributes:
        place: where in the script it is.
        time: how often the script had been there, with whatever values, in the same start.
        same: how often with the same loop variables and parameters.
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
        """Read what `to_json` returned.

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
    """The kept fit that a call goes on from.

    Attributes:
        number: of its folder.
        doubts: what may be another fit's, in words. One that was interrupted is gone on with all
            the same. One that had ended is not: its weights would be given for another training.
    """

    number: int
    doubts: tuple[str, ...] = ()


def choose(mine: Call, kept: Sequence[Kept]) -> Choice | None:
    """Return the kept fit that a call is, or None if it is a new one.

    The first that fits:

    1. Its line, its callers' lines, its loop variables and parameters are the same, and it was
       called as often.
    2. The lines are the same, and the model has the weights that this fit began with. So a script
       that leaves out what it has done before comes to the right one.
    3. The lines are the same, it was called as often, and only parameters that are text differ,
       such as a folder with a date.
    4. Its line is no longer in the script, and as many fits were called before it. So a line may
       be edited.

    Args:
        mine: the call.
        kept: the fits that no call of this start has gone on from.
    """
    there = [one for one in kept if one.call.place.has_lines_of(mine.place)]
    same = [one for one in there if one.call.place.numbers == mine.place.numbers]
    exact = [one for one in same if one.call.place.words == mine.place.words]
    for one in exact:
        if one.call.same == mine.same:
            return Choice(one.number, _doubts(mine, one.call))
    for one in same:
        if mine.began and likeness(mine.began, one.call.began) is Likeness.SAME:
            return Choice(one.number)
    for one in same:
        if one.call.time == mine.time:
            return Choice(one.number, (_other_words(mine, one.call), *_doubts(mine, one.call)))
    for one in kept:
        is_gone = bool(one.call.place.lines) and not one.call.place.is_in_source()
        if is_gone and one.call.order == mine.order:
            log.warning(
                "the line that calls fit %d has changed: it was `%s`, and is `%s`",
                one.number,
                one.call.place.shown,
                mine.place.shown,
            )
            return Choice(one.number, _doubts(mine, one.call))
    return None


def _doubts(mine: Call, other: Call) -> tuple[str, ...]:
    """Return what may be another fit's: weights that no other draw explains."""
    found = likeness(mine.began, other.began)
    is_drawn_alike = mine.seed is not None and mine.seed == other.seed
    has_both = mine.began is not None and other.began is not None
    is_other = found is Likeness.OTHER or (found is Likeness.DRAWN and is_drawn_alike and has_both)
    return ("the model's weights at its beginning",) if is_other else ()


def _other_words(mine: Call, other: Call) -> str:
    names = sorted({*mine.place.words} | {*other.place.words})
    differing = [
        name.partition(" ")[0]
        for name in names
        if mine.place.words.get(name) != other.place.words.get(name)
    ]
    return f"the parameter {', '.join(differing)} of its function"


def read_kept(fits: Mapping[int, Path]) -> list[Kept]:
    """Return the calls of a worker's kept fits, in the order of their numbers.

    A file that cannot be read is left out: another worker may know that fit.

    Args:
        fits: their folders by number.
    """
    found = []
    for number, place in sorted(fits.items()):
        with suppress(OSError, ValueError):
            found.append(Kept(number, Call.from_json((place / FILE).read_bytes())))
    return found


def write(call: Call, folder: Path) -> None:
    """Write down whose a folder is; a disk that does not take it costs a warning."""
    try:
        make_folder(folder)
        write_whole(folder / FILE, call.to_json(), durable=True)
    except OSError as error:
        log.warning("%s of %s could not be written: %s", FILE, folder.name, error)


def changed_files(mine: Call, other: Call) -> list[str]:
    """Return the script's files whose text is another now; files of one call alone do not count."""
    both = mine.texts.keys() & other.texts.keys()
    return sorted(name for name in both if mine.texts[name] != other.texts[name])
