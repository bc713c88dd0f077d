"""What a script asks of one `fit`, without a word: checkpoints, and records of what comes of it."""

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import keras

from cluster_trainer.collectives.replicas import ring_of
from cluster_trainer.collectives.workers import Workers, workers_of
from cluster_trainer.engine.calls.announced import seed_of_fit
from cluster_trainer.engine.running import Order
from cluster_trainer.fits.identity.call import Call
from cluster_trainer.fits.identity.compiled import optimizer_described, training_described
from cluster_trainer.fits.identity.fits import Chosen
from cluster_trainer.fits.identity.owner import script_name
from cluster_trainer.fits.kept.kept_fit import CHECKPOINTS, KeptFit
from cluster_trainer.fits.kept.options import FitOptions
from cluster_trainer.fits.program import Asked
from cluster_trainer.fits.script.about import asked_of
from cluster_trainer.fits.script.records import MOST_SHOWN, ScriptRecords, is_profiled
from cluster_trainer.results.on_screen.progress import LiveFile
from cluster_trainer.results.on_screen.report import Onlooker

if TYPE_CHECKING:
    from cluster_trainer.fits.script.script import Script

log = logging.getLogger("trainer")


class ScriptFit(Asked):
    """What a script asks of one of its fits.

    Args:
        script: has called it.
        number: of its fits in this process, from 0.
        given: the arguments of `fit`; callbacks may change the learning rate later.
        called: tells the call from others.
    """

    def __init__(
        self, script: "Script", number: int, given: inspect.BoundArguments, called: Call
    ) -> None:
        self._script, self._number, self._called = script, number, called
        self._model: keras.Model = given.args[0]
        self._described = described(self._model, given.arguments)
        self._asked = self._what_is_asked(given.arguments)
        self._chosen: Chosen | None = None

    def order(self) -> Order:
        """Return the order that the script's own seed gives, or the fit's number; see Asked."""
        return Order(seed_of_fit(self._number))

    def agree(self, workers: Workers, *, is_again: bool) -> None:
        """Agree with the others on where the script goes on, and which fit this is; see Asked."""
        has_ring = ring_of(self._model.distribute_strategy) is not None
        with self._script.choosing:
            self._script.agree(workers, is_again=is_again, has_ring=has_ring)
            self._chosen = self._script.fits.choose(self._called, workers, self._chosen)

    def options(self) -> FitOptions:
        """Return how the fit is kept; see Asked."""
        assert self._chosen  # noqa: S101  all have agreed
        options = self._options(self._chosen)
        self._script.has_recorded()
        return options

    def options_of_rehearsal(self) -> FitOptions:
        """Return how its first step is done without the other workers; see Asked."""
        return self._options(Chosen(self._number + 1, self._script.job.folder, self._called))

    def _options(self, chosen: Chosen) -> FitOptions:
        """Return how a fit is kept in a folder; say if each worker trains by itself."""
        script, job = self._script, self._script.job
        if workers_of(self._model.distribute_strategy).count == 1 < job.task.num_workers:
            log.warning(
                "%s trains on this worker alone: its model was not made in the scope of a "
                "MultiWorkerMirroredStrategy",
                chosen.name,
            )
        return FitOptions(
            job=job,
            stop=script.stop,
            deadline=script.deadline,
            folder=chosen.folder / CHECKPOINTS,
            described=self._described,
            # The callbacks of a fit that had ended may have changed them.
            compares_layers=not script.has_passed,
            begins=lambda: script.fits.note(chosen),
            had_ended=partial(self._pass_over, chosen),
            goes_on=chosen.say_doubts,
            name=chosen.name,
            must_resume=self._number == 0 and job.config.resume == "must",
            interrupts=True,
            listener=Onlooker(LiveFile(job.live_file), job.view),
            cuts=job.config.profile_cuts if is_profiled(self._number) else [],
            records=self._records(chosen.number - 1),
        )

    def _records(self, number: int) -> Callable[[KeptFit], Sequence[Any]] | None:
        """Return what makes the records in the folder of a number; None: there are to be none."""
        script = self._script
        if not script.records:
            return None
        is_first = not script.is_recorded
        return ScriptRecords(
            script.job, number, script.journal, self._model, script_name(), is_first, self._asked
        ).made

    def _pass_over(self, chosen: Chosen) -> None:
        """Note that a fit had ended, whose results are given for the script's call.

        Raises:
            ConfigurationError: it may be another one.
        """
        chosen.refuse_if_doubtful()
        self._script.has_passed = True

    def _what_is_asked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the script asks of the fit, if it is to be written down here."""
        is_chief = self._script.job.task.is_chief
        if not (self._script.records and is_chief and self._number < MOST_SHOWN):
            return {}
        try:
            return asked_of(self._model, arguments)
        except Exception as error:  # noqa: BLE001  nothing that is recorded is worth a training
            log.warning(
                "the arguments of the fit could not be recorded: %r; training goes on", error
            )
            return {}


def described(model: keras.Model, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return what must be as it was for a fit to go on: name -> value."""
    training = training_described(model, arguments)
    return {"the script": script_name(), **optimizer_described(model), **training}
