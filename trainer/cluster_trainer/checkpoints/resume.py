"""Finds the checkpoint from which a run resumes: the newest complete one of any worker."""

import io
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster_trainer.checkpoints.checkpoint import (
    UNKNOWN_RUN,
    Checkpoint,
    Stage,
    about,
    run_of,
    uncounted,
    variable_names,
)
from cluster_trainer.checkpoints.saver import Saver
from cluster_trainer.checkpoints.store import Store, Stored
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.settings.task import Task

if TYPE_CHECKING:  # it imports TensorFlow, which this module does not need
    from cluster_trainer.collectives.workers import Workers

NOTHING = -1
NEWEST = "fit (the newest checkpoint)"
SHOWN_VARIABLES = 3
LAYERS = "the layers"
"""The setting with a digest of the layers' configurations."""
CALLBACKS, NUMBERS = "the callbacks that steer it", "the numbers that losses and metrics read"
LAYERS_NUMBERS = "the numbers that layers, activations and a train_step read"
DATA_NUMBERS = "the numbers in functions of tf.data"
SHUFFLE = "shuffle"
"""Whether Keras shuffles the examples; checkpoints of earlier versions lack it."""
OF_A_WORKER = (CALLBACKS, NUMBERS, LAYERS_NUMBERS, DATA_NUMBERS)
"""The settings that may differ between workers, such as a callback of the chief."""
log = logging.getLogger("trainer")


@dataclass(frozen=True)
class Found:
    """The newest checkpoint of all workers.

    Attributes:
        checkpoint: the checkpoint.
        content: the bytes of its file.
        holder: the name of a worker that has it on its disk.
        is_here: whether this worker has it on its disk.
    """

    checkpoint: Checkpoint
    content: bytes
    holder: str
    is_here: bool


def find_newest(store: Store, workers: "Workers", task: Task) -> Found | None:
    """Find the newest checkpoint, and send it to all workers; None: there is none.

    All workers call this. A newcomer's disk may hold another run's checkpoints, which do not count;
    see `_that_count`. If they are newer, they are moved aside. Otherwise they would count as soon
    as the worker is no newcomer any more.

    Raises:
        ConfigurationError: this worker is a newcomer, and its own newer checkpoint has other
            settings or variables.
    """
    mine = store.newest()
    my_number = mine.number if mine else NOTHING
    numbers = workers.gather(my_number, NEWEST)
    numbers = _that_count(numbers, mine, workers)
    newest = max(numbers)
    if newest == NOTHING:
        return None
    holder = numbers.index(newest)
    given = mine.content if mine and workers.rank == holder else None
    content = workers.broadcast(given, holder, NEWEST)
    found = Checkpoint.from_bytes(content)
    is_new = workers.rank in workers.newcomers
    if is_new and mine and my_number > newest:  # this worker's own checkpoint did not count
        _refuse_newcomers_own(mine.content, found, task)
        _set_newer_aside(store, my_number, found)
    return Found(
        checkpoint=found,
        content=content,
        holder=task.name_of(workers.members[holder]),
        is_here=my_number == newest and not is_new,
    )


def keep(found: Found, saver: Saver) -> None:
    """Save a checkpoint that this worker lacks, so that the run is soon as safe as before."""
    if not found.is_here:
        saver.keep(found.checkpoint.number, found.content)


def _that_count(numbers: list[int], mine: Stored | None, workers: "Workers") -> list[int]:
    """Return the workers' numbers, with NOTHING for checkpoints that may be another run's.

    The checkpoint of a worker that is not new always counts. A newcomer's counts in two cases:

    - It has the same run number as the others' newest one, for example if a worker comes back with
      its disk.
    - No other worker has a checkpoint.
    """
    others = [NOTHING if rank in workers.newcomers else one for rank, one in enumerate(numbers)]
    if others == numbers or max(others) == NOTHING:
        return numbers
    runs = workers.gather(_run_of(mine), NEWEST)
    this = runs[others.index(max(others))]
    return [
        one if other != NOTHING or run == this != UNKNOWN_RUN else NOTHING
        for one, other, run in zip(numbers, others, runs, strict=True)
    ]


def _run_of(stored: Stored | None) -> int:
    return run_of(about(io.BytesIO(stored.content))["progress"]) if stored else UNKNOWN_RUN


def _refuse_newcomers_own(content: bytes, found: Checkpoint, task: Task) -> None:
    """Refuse this worker's own checkpoint if the others' newest one belongs to another run.

    Of the arrays, only variables are compared, as in `fit`: the number of states of callbacks and
    metrics in a checkpoint depends on its place in the run.

    Raises:
        ConfigurationError: settings or variables differ.
    """
    own = Found(Checkpoint.from_bytes(content), content, task.name, is_here=True)
    refuse_other_run(own, found.settings, uncounted(variable_names(found)), OF_A_WORKER)


def _set_newer_aside(store: Store, number: int, found: Checkpoint) -> None:
    """Move aside this worker's own checkpoints that are newer than the one that is found."""
    log.warning(
        "the checkpoint of step %d on this worker's disk may belong to another run: it was moved "
        "to %s, because all workers resume from step %d",
        number // len(Stage),
        store.set_aside_after(found.number),
        found.step,
    )


def refuse_other_run(
    found: Found,
    settings: Mapping[str, str],
    names: Sequence[str],
    left_out: Collection[str] = (),
) -> None:
    """Refuse to resume from a checkpoint of another run.

    Args:
        found: the checkpoint.
        settings: this run's facts that have to be the same: name -> value.
        names: the names of this run's variables, `uncounted`, in the order of the arrays.
        left_out: the names of settings that are not compared.

    Raises:
        ConfigurationError: settings or variables differ; it names every setting that differs, or
            the variables.
    """
    saved, kept = found.checkpoint, uncounted(variable_names(found.checkpoint))
    where = f"as in the checkpoint of step {saved.step} held by {found.holder}"
    problems = [
        Problem(
            name, settings.get(name, ""), f"{saved.settings.get(name, '')}, {where}", _advice(name)
        )
        for name in sorted((saved.settings.keys() | settings.keys()) - {*left_out})
        if saved.settings.get(name) != settings.get(name)
    ]
    # If layers differ, the variables' names say more about that than the layers' digest.
    tells = [problem for problem in problems if problem.name not in {LAYERS, LAYERS_NUMBERS}]
    random_state = saved.progress.get("random")
    if random_state and "keras" not in random_state and kept[:-1] == list(names):
        kept = kept[:-1]  # see variable_names
    if not tells and kept != list(names):
        problems = [_other_variables(kept, names, where)]
    if problems:
        raise ConfigurationError(problems)


ADVICE = (
    "Use that value, another TRAINER_RUN_DIR for another run, or TRAINER_RESUME=never to start "
    "over in this one."
)
DIGEST = "SHA-256"
SEED = (
    "The script has other data than at its earlier start. If it splits or shuffles them at "
    "random, set a seed: `train_test_split(..., random_state=1)`, `np.random.default_rng(1)`, or "
    "`keras.utils.set_random_seed(1)` at the beginning of the script."
)


DRAWN = (
    "The fit has ended, and its result is not that of these numbers. If the script draws them, set "
    "a seed: `keras.utils.set_random_seed(1)` at the beginning of the script."
)


def _advice(name: str) -> str:
    more = DRAWN if name == DATA_NUMBERS else SEED if name.startswith(DIGEST) else ""
    return f"{more} {ADVICE}".lstrip()


def _other_variables(saved: Sequence[str], mine: Sequence[str], where: str) -> Problem:
    received = [name for name in mine if name not in saved]
    accepted = [name for name in saved if name not in mine]
    return Problem(
        "the model's and the optimizer's variables",
        _listed(received) or f"{len(mine)} in another order",
        f"{_listed(accepted) or f'those {len(saved)}'}, {where}",
        ADVICE,
    )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - SHOWN_VARIABLES
    return ", ".join(names[:SHOWN_VARIABLES]) + (f" and {more} more" if more > 0 else "")
