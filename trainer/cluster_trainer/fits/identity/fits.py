"""The kept fits of a worker's folder: which of them a call goes on from, agreed on by all."""

import logging
import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import FrameType

import keras
from keras.src.utils.rng_utils import get_random_seed

from cluster_trainer.checkpoints.state import on_first_replica
from cluster_trainer.collectives.workers import Workers
from cluster_trainer.fits.identity import call as calls
from cluster_trainer.fits.identity.call import Call, Kept, choose
from cluster_trainer.fits.identity.place import digest_of, is_installed, place_of
from cluster_trainer.fits.identity.weights import Summary, sampled, summary_of
from cluster_trainer.fits.kept.ended import ended_fits
from cluster_trainer.problems import ConfigurationError, Problem

WHICH = "fit (which one it is)"
NAME = re.compile(r"fit-([0-9]{1,9})")
MOST_FILES = 200
"""Files of a script whose text is compared."""
ANEW = (
    "TRAINER_RESUME=never moves what is there aside and begins anew; another TRAINER_RUN_DIR keeps "
    "both."
)
log = logging.getLogger("trainer")


@dataclass(frozen=True)
class Chosen:
    """The folder of a call of `fit`.

    Attributes:
        number: the fit's, from 1.
        folder: where it is kept.
        call: what all workers have agreed that it is.
        called_here: the line of this worker that calls it, in words.
        doubts: why a fit that had ended there may be another; see Choice.
    """

    number: int
    folder: Path
    call: Call
    called_here: str = ""
    doubts: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What the log calls it."""
        return f"fit {self.number}"

    def note(self) -> None:
        """Write down whose the folder is, once: later starts may begin with other weights."""
        if not (self.folder / calls.FILE).exists():
            calls.write(self.call, self.folder)

    def refuse_if_doubtful(self) -> None:
        """Refuse to give the results of a fit that had ended to what may be another one.

        Raises:
            ConfigurationError: it may be.
        """
        if self.doubts:
            accepted = f"what {self.name} had, which was called by the same line and had ended"
            advice = f"Its results would be given for this one's: {self.call.place.shown}. {ANEW}"
            raise ConfigurationError(
                [Problem(what, "another", accepted, advice) for what in self.doubts]
            )


@dataclass
class Fits:
    """The fits that this process has called, and those that are kept in its worker's folder.

    Args:
        folder: the worker's own.
        keeps: whether this process keeps its fits there; else it goes on from none.
    """

    folder: Path
    keeps: bool = True
    _taken: set[int] = field(default_factory=set)
    _times: Counter[object] = field(default_factory=Counter)
    _order: int = 0

    def call(self, model: keras.Model, frame: FrameType | None) -> Call:
        """Return what tells a call of `fit` from another; each call is counted.

        Args:
            model: what is trained.
            frame: of something that the script has called.
        """
        place = place_of(frame)
        lines = tuple((line.function, line.text) for line in place.lines)
        values = (lines, tuple(place.numbers.items()), tuple(place.words.items()))
        called = Call(
            place=place,
            time=self._times[lines],
            same=self._times[values],
            order=self._order,
            seed=get_random_seed(),
            began=_weights(model),
            arguments=f"{len(sys.argv) - 1}, {digest_of(repr(sys.argv[1:]))}",
            texts=dict(_texts()),
        )
        self._times.update({lines: 1, values: 1} if place.lines else {lines: 1})
        self._order += 1
        return called

    def choose(self, mine: Call, workers: Workers, before: Chosen | None = None) -> Chosen:
        """Return the folder of a call; all workers call it, and get the same number.

        Args:
            mine: the call of this worker. The chief's counts for all: models that are made without
                a seed begin with its weights.
            workers: this one and the others.
            before: what was chosen for the same call, which begins again; None: nothing yet.

        Raises:
            ConfigurationError: the script has other arguments than when the fit began.
        """
        if before:
            self._taken.discard(before.number)
        chiefs = workers.broadcast(mine.to_json() if workers.rank == 0 else None, 0, WHICH)
        agreed = replace(Call.from_json(chiefs), arguments=mine.arguments, texts=mine.texts)
        folders = self._folders()
        kept = [one for one in calls.read_kept(folders) if one.number not in self._taken]
        found = choose(agreed, kept)
        proposed = workers.gather(found.number if found else 0, WHICH)
        newest = max(workers.gather(max([0, *folders, *self._taken]), WHICH))
        number = next((one for one in proposed if one), newest + 1)
        self._taken.add(number)
        _refuse_other_arguments(number, mine, kept)
        doubts = found.doubts if found and found.number == number else ()
        folder = self.folder / f"fit-{number}"
        return Chosen(number, folder, agreed, mine.place.shown, doubts)

    def _folders(self) -> dict[int, Path]:
        """Return the folders of fits by their numbers."""
        if not (self.keeps and self.folder.is_dir()):
            return {}
        named = ((NAME.fullmatch(one.name), one) for one in self.folder.iterdir())
        return {int(match[1]): one for match, one in named if match}


def _refuse_other_arguments(number: int, mine: Call, kept: list[Kept]) -> None:
    """Refuse to go on with other arguments of the script; say which of its files have changed.

    Raises:
        ConfigurationError: they are others than when the fit began on this worker.
    """
    before = next((one.call for one in kept if one.number == number), None)
    if before is None:
        return
    if before.arguments != mine.arguments:
        accepted = f"{before.arguments}, as when fit {number} began"
        advice = f"They may change the training. {ANEW}"
        what = "the script's arguments (their number, and a digest)"
        raise ConfigurationError([Problem(what, mine.arguments, accepted, advice)])
    for name in calls.changed_files(mine, before):
        _warn_of_change(name)


@cache
def _warn_of_change(name: str) -> None:
    log.warning(
        "%s is not as it was when the run began: training goes on from its checkpoints. If that "
        "changes the training, begin anew. %s",
        name,
        ANEW,
    )


def _weights(model: keras.Model) -> Summary | None:
    """Return a summary of a model's weights; None where there are none yet, or none any more."""
    variables = [one for one in model.variables if one.dtype != "string"]
    if not (model.built and variables) or ended_fits.are_gone(model.variables):
        return None
    return summary_of(
        [sampled(keras.ops.reshape(on_first_replica(one), [-1])) for one in variables]
    )


def _texts() -> Mapping[str, str]:
    """Return a digest of each file of the script: its own, and modules of the folder it is in."""
    return _read_texts(tuple(_files()))


def _files() -> list[Path]:
    main = Path(sys.argv[0] or ".").absolute()
    loaded = [getattr(module, "__file__", None) for module in [*sys.modules.values()]]
    files = {Path(file).absolute() for file in loaded if file and not is_installed(file)}
    found = sorted(one for one in files if main.parent in one.parents)[:MOST_FILES]
    return [main, *found] if main.is_file() and main not in found else found


@cache
def _read_texts(files: tuple[Path, ...]) -> Mapping[str, str]:
    found = {}
    for file in files:
        try:
            found[file.name] = digest_of(file.read_text(errors="surrogateescape"))
        except OSError:
            continue
    return found
