"""The saved fits of a worker's folder: all workers agree from which one a call resumes."""

import logging
import re
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import keras

from cluster_trainer.fits.identity import fit_matching
from cluster_trainer.fits.identity.fit_matching import Call, Kept, choose
from cluster_trainer.fits.identity.place import place_of
from cluster_trainer.fits.identity.weights import Summary, sampled, summary_of
from cluster_trainer.private import any_backend
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.same_code.script_text import digest_of, texts

if TYPE_CHECKING:  # it imports TensorFlow, which nothing here needs
    from cluster_trainer.collectives.workers import Workers

WHICH = "fit (which one it is)"
NAME = re.compile(r"fit-([0-9]{1,9})")
ANEW = (
    "TRAINER_RESUME=never moves the earlier results aside and starts over; another "
    "TRAINER_RUN_DIR keeps both."
)
log = logging.getLogger("trainer")


@dataclass(frozen=True)
class Chosen:
    """The folder of a call of `fit`.

    Attributes:
        number: the number of the fit, from 1.
        folder: the fit's folder.
        call: the identity of the call, on which all workers have agreed.
        doubts: the reasons why the saved fit may be a different one; see Choice.
    """

    number: int
    folder: Path
    call: Call
    doubts: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name in the log."""
        return f"fit {self.number}"

    def say_doubts(self) -> None:
        """Warn of parts that may belong to another fit, if an interrupted fit resumes."""
        for what in self.doubts:
            log.warning("%s: %s may have changed; it resumes from its checkpoint", self.name, what)

    def refuse_if_doubtful(self) -> None:
        """Refuse to return the results of a finished fit to a call that may be another one.

        If its weights alone tell which call it is, a warning says so.

        Raises:
            ConfigurationError: there are doubts.
        """
        if self.doubts:
            accepted = f"those of {self.name}, which had ended"
            advice = f"Its result is not used for `{self.call.place.shown}`. {ANEW}"
            raise ConfigurationError(
                [Problem(what, "others", accepted, advice) for what in self.doubts]
            )
        if not self.call.place.is_certain:
            _warn_of_weights(self.name, self.call.place.shown)


@dataclass
class Fits:
    """The fits that this process has called, and those that are saved in its worker's folder.

    Args:
        folder: the worker's own folder.
        keeps: whether this process saves its fits there; otherwise it does not resume either.
    """

    folder: Path
    keeps: bool = True
    _taken: set[int] = field(default_factory=set)
    _known: dict[int, Call | None] | None = None
    _times: Counter[object] = field(default_factory=Counter)
    _order: int = 0

    def call(self, began: Summary | None, frame: FrameType | None) -> Call:
        """Return the identity of a call of `fit`; each call is counted.

        Args:
            began: a summary of the model's weights; None: they do not exist yet, or were removed.
            frame: the frame of a function that the script has called.
        """
        place = place_of(frame)
        lines = tuple((line.function, line.text) for line in place.lines)
        values = (lines, *place.values)
        called = Call(
            place=place,
            time=self._times[lines],
            same=self._times[values],
            order=self._order,
            seed=any_backend.get_random_seed(),
            began=began,
            arguments=_arguments(),
            texts=dict(texts()),
        )
        self._times.update({lines: 1, values: 1} if place.lines else {lines: 1})
        self._order += 1
        return called

    def choose(self, mine: Call, workers: "Workers", before: Chosen | None = None) -> Chosen:
        """Choose the folder of a call; all workers call this, and get the same number.

        Args:
            mine: this worker's call. The chief's call decides for all workers, because models that
                are created without a seed begin with the chief's weights.
            workers: the workers that train together.
            before: the earlier choice for this call, which begins again; None: there was none.

        Raises:
            ConfigurationError: the script's arguments or its seed have changed since the fit began.
        """
        if before:
            self._taken.discard(before.number)
        chiefs = workers.broadcast(mine.to_json() if workers.rank == 0 else None, 0, WHICH)
        agreed = replace(Call.from_json(chiefs), arguments=mine.arguments, texts=mine.texts)
        if not agreed.place.has_lines_of(mine.place):
            _warn_of_other_line(mine.place.shown, agreed.place.shown)
        free = {number: one for number, one in self._kept().items() if number not in self._taken}
        known = [Kept(number, one) for number, one in free.items() if one]
        found = choose(agreed, known, [number for number, one in free.items() if one is None])
        proposed = workers.gather(found.number if found else 0, WHICH)
        newest = max(workers.gather(max([0, *self._kept(), *self._taken]), WHICH))
        number = next((one for one in proposed if one), newest + 1)
        self._taken.add(number)
        _refuse_others(number, mine, free.get(number))
        doubts = found.doubts if found and found.number == number else ()
        folder = self.folder / f"fit-{number}"
        return Chosen(number, folder, agreed, doubts)

    def note(self, chosen: Chosen) -> None:
        """Write the identity of a folder's fit, once: later starts may begin with other weights."""
        if self.keeps and self._kept().get(chosen.number) is None:
            fit_matching.write(chosen.call, chosen.folder)
            self._kept()[chosen.number] = chosen.call

    def _kept(self) -> dict[int, Call | None]:
        """Return the calls of the saved fits by number, which no other process changes."""
        if self._known is None:
            self._known = {}
            if self.keeps and self.folder.is_dir():
                named = ((NAME.fullmatch(one.name), one) for one in self.folder.iterdir())
                found = {int(match[1]): fit_matching.read(one) for match, one in named if match}
                self._known = dict(sorted(found.items()))
        return self._known


def _refuse_others(number: int, mine: Call, before: Call | None) -> None:
    """Refuse to resume with other arguments, or another seed; warn of changed files."""
    if before is None:
        return
    told = {
        "the script's arguments (their number, and a digest)": (mine.arguments, before.arguments),
        "the seed of keras.utils.set_random_seed": (mine.seed, before.seed),
    }
    problems = [
        Problem(
            what,
            str(now),
            f"{then}, as when fit {number} began",
            f"It may change the training. {ANEW}",
        )
        for what, (now, then) in told.items()
        if now != then and None not in {now, then}
    ]
    if problems:
        raise ConfigurationError(problems)
    for name in fit_matching.changed_files(mine, before):
        _warn_of_change(name)


@cache
def _warn_of_other_line(mine: str, chiefs: str) -> None:
    log.warning("this worker calls fit at another line than worker 0: `%s`, `%s`", mine, chiefs)


@cache
def _warn_of_weights(name: str, place: str) -> None:
    log.warning(
        "%s had ended: its result is used for `%s` because the model begins with the same weights. "
        "Nothing else can be compared in this loop. If the script leaves out calls that it has "
        "done before, this may be the result of another call. Loop over numbers or names, or pass "
        "one as a parameter, to tell the calls apart",
        *(name, place),
    )


@cache
def _warn_of_change(name: str) -> None:
    log.warning(
        "%s has changed since the run began: training resumes from its checkpoints. If that "
        "changes the training, start over. %s",
        name,
        ANEW,
    )


def weights_of(model: keras.Model) -> Summary | None:
    """Return a summary of a model's weights; None if there are none yet."""
    from cluster_trainer.checkpoints.state import on_first_replica  # noqa: PLC0415  of TensorFlow

    variables = [one for one in model.variables if one.dtype != "string"]
    if not (model.built and variables):
        return None
    return summary_of(
        [sampled(keras.ops.reshape(on_first_replica(one), [-1])) for one in variables]
    )


def _arguments() -> str:
    """Return the number of the script's arguments, and a digest; the code of `python -c` is one."""
    # A notebook's argument is a file that has a new name at each start.
    given = sys.argv[1:] if "ipykernel" not in sys.modules else []
    told = [*sys.orig_argv, *given] if sys.argv[0] == "-c" else given
    return f"{len(given)}, {digest_of(repr(told))}"
