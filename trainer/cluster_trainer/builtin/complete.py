"""Completes a run of the built-in trainer, by a call of Keras's `fit` as in any script."""

import logging

import keras

from cluster_trainer.builtin.run import Completed, Run, described_of
from cluster_trainer.builtin.trainer import Trainer
from cluster_trainer.callbacks.divergence import Divergence
from cluster_trainer.data.feeds import fit_arguments
from cluster_trainer.engine import install
from cluster_trainer.engine.calls import announced
from cluster_trainer.engine.running import is_in_fit
from cluster_trainer.fits.process_state import present
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.process.stall import Deadline
from cluster_trainer.process.stop import StopRequest
from cluster_trainer.results import record, weights
from cluster_trainer.results.on_screen.report import Reporter
from cluster_trainer.settings.job import engine_off

log = logging.getLogger("trainer")


def complete(run: Run, stop: StopRequest, deadline: Deadline, reporter: Reporter) -> Completed:
    """Train from the newest checkpoint of any worker, or from the start, to the end.

    Raises:
        ConfigurationError: the workers differ, or the checkpoint belongs to another run.
        StopRequestedError, PeerStoppedError: a worker was asked to stop.
        TrainingDivergedError: the loss is not a finite number.
        PeerLostError, RingError: a worker was lost, and only a new process could continue.
    """
    _refuse_other_engines(run.model)
    _tell_what_is_used(run, reporter)
    process = present()
    trainer = Trainer(
        run.job,
        stop,
        deadline,
        reporter.journal,
        process.ended,
        process.network,
        run=run,
        described=described_of(run),
        reporter=reporter,
    )
    with process.running(trainer):
        run.model.fit(
            **fit_arguments(run.data, run.job.config, run.plan),
            epochs=run.plan.epochs,
            callbacks=[Divergence(lambda: trainer.place)],
            verbose=0,
        )
    values = weights.values_of(run.model)
    reporter.weights(weights.digest(values))
    return Completed(values, [dict(line) for line in reporter.lines], trainer.place.step)


def _refuse_other_engines(model: keras.Model) -> None:
    """Refuse a model whose training the engine does not control, because it would not be saved.

    Raises:
        ConfigurationError: the model is such; it names the reason.
    """
    if not install.is_installed():
        raise ConfigurationError([engine_off("off")])
    if is_in_fit():  # outside the control of Keras's hook
        accepted = "a call of cluster_trainer.fit outside of another fit, and of its callbacks"
        raise ConfigurationError([Problem("model", model.name, accepted)])
    if own := announced.own_functions(model):
        accepted = f"a model without its own {' and '.join(own)}"
        advice = "Your own script can train it with `model.fit`, without checkpoints."
        raise ConfigurationError([Problem("model", type(model).__name__, accepted, advice)])


def _tell_what_is_used(run: Run, reporter: Reporter) -> None:
    """Log the optimizer, the loss and the settings of the training."""
    used = record.of(run.model)
    reporter.used(used)
    reporter.settings(run.job.config.as_json())
    names = {"optimizer": used["optimizer"]["class_name"], "loss": used["loss"]}
    log.info(", ".join(f"{what} {name}" for what, name in names.items() if name) or "compiled")
