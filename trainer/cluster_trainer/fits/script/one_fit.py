"""A script's implicit requests for one `fit`: checkpoints and records."""

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

import keras

from cluster_trainer.collectives.replicas import ring_of
from cluster_trainer.collectives.workers import Workers, workers_of
from cluster_trainer.engine.calls.announced import seed_of_fit
from cluster_trainer.engine.running import Order
from cluster_trainer.fits.identity.fit_matching import Call
from cluster_trainer.fits.identity.owner import script_name
from cluster_trainer.fits.identity.saved_fits import Chosen
from cluster_trainer.fits.identity.training_description import (
    optimizer_described,
    training_described,
)
from cluster_trainer.fits.kept.kept_fit import KeptFit
from cluster_trainer.fits.kept.options import FitOptions
from cluster_trainer.fits.program import FitRequest, options_of
from cluster_trainer.fits.script.about import asked_of
from cluster_trainer.fits.script.records import MOST_SHOWN, ScriptRecords, is_profiled

if TYPE_CHECKING:
    from cluster_trainer.fits.script.script import Script

log = logging.getLogger("trainer")


class Stage(Enum):
    """The progress of a script in this process."""

    NEW = "none of its fits has met the other workers"
    AGREED = "all workers have agreed where it resumes; no fit was recorded since"
    RECORDED = "a fit was recorded since"


@dataclass
class ScriptFit(FitRequest):
    """A script's requests for one of its fits.

    Attributes:
        script: the script that has called the fit.
        number: the number of the fit in this process, from 0.
        called: the identity of the call.
        model: the model to train.
        described: all facts that must be unchanged when the fit resumes: name -> value.
        told: the fit's parameters for about.json; see `asked_of`.
        chosen: its folder; None: the workers have not agreed yet.
    """

    script: "Script"
    number: int
    called: Call
    model: keras.Model
    described: Mapping[str, str]
    told: Mapping[str, Any] = field(default_factory=dict)
    chosen: Chosen | None = None

    def order(self) -> Order:
        """Return the order from the script's own seed, or from the fit's number; see FitRequest."""
        return Order(seed_of_fit(self.number))

    def agree(self, workers: Workers, *, is_again: bool) -> None:
        """Agree on where the script resumes, and on the saved fit that this is; see FitRequest."""
        has_ring = ring_of(self.model.distribute_strategy) is not None
        with self.script.choosing:
            self.script.agree(workers, is_again=is_again, has_ring=has_ring)
            self.chosen = self.script.fits.choose(self.called, workers, self.chosen)

    def options(self) -> FitOptions:
        """Return the options of the saved fit; see FitRequest."""
        assert self.chosen  # noqa: S101  all have agreed
        options = self._options(self.chosen)
        self.script.stage = Stage.RECORDED
        return options

    def options_of_rehearsal(self) -> FitOptions:
        """Return the options for its first step without the other workers; see FitRequest."""
        return self._options(Chosen(self.number + 1, self.script.job.folder, self.called))

    def _options(self, chosen: Chosen) -> FitOptions:
        """Return the options of a fit in a folder; warn if each worker trains by itself."""
        script, job = self.script, self.script.job
        if workers_of(self.model.distribute_strategy).count == 1 < job.task.num_workers:
            log.warning(
                "%s trains on this worker alone: its model was not made in the scope of a "
                "MultiWorkerMirroredStrategy",
                chosen.name,
            )
        return options_of(
            script,
            chosen.folder,
            self.described,
            # The callbacks of a finished fit, which did not run again, may have changed layers.
            compares_layers=not script.has_passed,
            begins=lambda: script.fits.note(chosen),
            had_ended=partial(self._pass_over, chosen),
            goes_on=chosen.say_doubts,
            name=chosen.name,
            must_resume=self.number == 0 and job.config.resume == "must",
            interrupts=True,
            cuts=job.config.profile_cuts if is_profiled(self.number) else [],
            records=self._records(chosen.number - 1),
        )

    def _records(self, number: int) -> Callable[[KeptFit], Sequence[Any]] | None:
        """Return a function that makes the records of a fit; None: it is not recorded."""
        script = self.script
        if not script.records:
            return None
        is_first = script.stage is not Stage.RECORDED
        return ScriptRecords(
            script.job, number, script.journal, self.model, script_name(), is_first, self.told
        ).made

    def _pass_over(self, chosen: Chosen) -> None:
        """Note that a finished fit's results are returned for the script's call."""
        chosen.refuse_if_doubtful()
        self.script.has_passed = True


def fit_of(script: "Script", number: int, given: inspect.BoundArguments, called: Call) -> ScriptFit:
    """Return a script's requests for a fit; call it before callbacks can change the model."""
    model = given.args[0]
    told = _told(model, given.arguments) if _is_told(script, number) else {}
    return ScriptFit(script, number, called, model, described(model, given.arguments), told)


def _is_told(script: "Script", number: int) -> bool:
    return script.records and script.job.task.is_chief and number < MOST_SHOWN


def _told(model: keras.Model, arguments: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return asked_of(model, arguments)
    except Exception as error:  # noqa: BLE001  a failed record must not end the training
        log.warning("the arguments of the fit could not be recorded: %r; training continues", error)
        return {}


def described(model: keras.Model, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the values that must be unchanged when a fit resumes: name -> value."""
    training = training_described(model, arguments)
    return {"the script": script_name(), **optimizer_described(model), **training}
