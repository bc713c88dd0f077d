"""Compares the workers' data: each worker has its own copy, and takes its shares from it.

Differences in arrays and in a pipeline's seeds are refused. Data that a user's code makes may be
random, such as augmented pictures, so their differences only cause a warning. There is no warning
if the differing parts change with each reading, and the other parts, such as labels, are the same.
"""

import json
import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from hashlib import sha256
from typing import Any
from weakref import WeakSet

import keras
import numpy as np
import tensorflow as tf

from cluster_trainer.collectives.workers import Workers
from cluster_trainer.engine import compared_facts
from cluster_trainer.engine.data.pipelines import content
from cluster_trainer.problems import ConfigurationError, Problem, told
from cluster_trainer.settings.task import names_of

ADVICE = (
    "Each worker needs all of the data in the same order, and takes its share. Set a `seed` where "
    "they are loaded, split or shuffled, or call `keras.utils.set_random_seed` first, with the "
    "same number on all workers; for a loader of PyTorch call `torch.manual_seed` as well. Sort "
    "the files of a folder."
)
PREDICT = "predict"
EXAMPLES = "SHA-256 of some examples, part"
_read_now: WeakSet[Any] = WeakSet()
log = logging.getLogger("trainer")


class RowsOfItsOwnError(Exception):
    """The workers have different rows to predict.

    Attributes:
        spec: the specification of a replica's share of a batch.
    """

    def __init__(self, spec: Any) -> None:
        super().__init__("the workers have different rows to predict")
        self.spec = spec


def has_own_rows(workers: Workers, source: Any, more: Mapping[str, str]) -> bool:
    """Tell whether workers have different rows to predict, such as noise that each has drawn.

    All workers must call this, and get the same answer. `more` has additional facts about the data.
    """
    what = f"{PREDICT} (data)"
    everyone = compared_facts.of_all(workers, {**_found(source), **more}, what)
    if not everyone:
        return False
    # Data that change with each reading, such as augmented pictures, may be divided.
    return not _drawn_anew(workers, source, what).issuperset(compared_facts.differing(everyone))


def refuse_others(
    workers: Workers, source: Any, more: Mapping[str, str], what: str, *, may_differ: bool = False
) -> str:
    """Compare the workers' data, and refuse differences; all workers must call this.

    Args:
        workers: the workers that compare.
        source: this worker's data.
        more: further facts about the data.
        what: the name of the call that reads the data, such as "fit".
        may_differ: whether to accept differences that would be refused.

    Returns:
        the names of the differences that deserve a warning (see `warn`); "" if there are none.

    Raises:
        ConfigurationError: the data differ; it names all differences, on every worker.
        PeerUnfit: only newcomers differ, and this worker is no newcomer; see newcomers.py.
    """
    found = _found(source)
    everyone = compared_facts.of_all(workers, {**found, **more}, f"{what} (data)")
    if not everyone:
        return ""
    others = compared_facts.differing(everyone)
    drawn = _drawn_anew(workers, source, f"{what} (data)")
    wrong = [name for name in others if not (name in source.doubtful or name.startswith(EXAMPLES))]
    if wrong and not may_differ:
        _refuse(workers, everyone, wrong)
    # Parts that change with each reading are identified by the other parts: augmented pictures by
    # their labels.
    return ", ".join(others) if {*found} == drawn or not drawn.issuperset(others) else ""


def warn(what: str, others: str) -> None:
    """Warn that the workers' data for the call `what` differ in `others`; see `refuse_others`."""
    comes = "Unless they are random on purpose, some examples are used twice and others never."
    if what.endswith("_on_batch"):
        comes = "Unless they are random on purpose, a step uses a part of each worker's batch."
    if what == PREDICT:
        comes = "So each worker gets predictions for rows of all workers."
    log.warning(
        "%s: the workers' data differ (%s), on purpose or not: each worker takes its shares from "
        "its own batches. %s %s",
        what,
        others,
        comes,
        ADVICE,
    )


def warn_of_own_draws(what: str, source: Any) -> None:
    """Warn if a user's code draws examples of which each worker reads only its own."""
    with _drawing_nothing_of(source):
        is_drawn = source.reads_own_rows and source.found() != source.found_anew()
    if is_drawn:
        log.warning(
            "%s: an example differs when it is read again. Each worker reads only its own rows, so "
            "it draws other numbers than one worker would. To draw the same, make them from the "
            "row's index, such as with `np.random.default_rng(index)`",
            what,
        )


# Otherwise a callback's `evaluate` of random data would warn at each epoch.
warn_once = cache(warn)


def _found(source: Any) -> dict[str, str]:
    with _drawing_nothing_of(source):
        return dict(source.found())


def _drawn_anew(workers: Workers, source: Any, what: str) -> set[str]:
    """Return the names of the facts that change with each reading, on any worker."""
    with _drawing_nothing_of(source):
        before, now = source.found(), source.found_anew()
    mine = {name: "" for name, value in before.items() if now.get(name) != value}
    everyone = compared_facts.of_all(workers, mine, what) or [mine]
    return {name for one in everyone for name in one}


def _refuse(workers: Workers, everyone: Sequence[Mapping[str, str]], wrong: list[str]) -> None:
    """Refuse differences; see `refuse_others`."""
    answers = [json.dumps([one.get(name) for name in wrong]) for one in everyone]
    workers.leave_out_or_part(answers, "its data")
    names = names_of(workers.members)
    raise ConfigurationError(
        [
            Problem(
                name,
                values[workers.rank],
                "the same on all workers",
                f"{told(names, values)}. {ADVICE}",
            )
            for name, values in compared_facts.differing(everyone).items()
            if name in wrong
        ]
    )


def refuse_lengths(
    workers: Workers, counts: Sequence[int | None], things: str, of: str = "data"
) -> None:
    """Refuse data of different lengths; all workers call this with the same counts.

    Workers with more batches would wait for workers that have none left. Shares of batches of
    different sizes do not add up to one batch.

    Args:
        workers: the workers.
        counts: each worker's number of things, in rank order; None stands for an unknown number.
            The list is empty if the engine has read the batch.
        things: the name of the things that are counted, "batches" or "examples".
        of: the name of their whole, "data" or "batch".

    Raises:
        ConfigurationError: the lengths differ. If only newcomers' lengths differ, it is raised on
            newcomers alone.
        PeerUnfit: only newcomers' lengths differ, and this worker is no newcomer; see newcomers.py.
    """
    if len({*counts}) <= 1:
        return
    numbers = ["unknown" if one is None else str(one) for one in counts]
    workers.leave_out_or_part(numbers, f"the number of its {things}")
    mine = f"{numbers[workers.rank]} {things}"
    told_all = told(names_of(workers.members), numbers)
    advice = f"{told_all}. Each worker needs the whole {of}, and takes its share."
    raise ConfigurationError([Problem(f"the {of}", mine, "the same on all workers", advice)])


def differing_batches(workers: Workers, batch: Any, what: str) -> str:
    """Return the differing parts of the workers' batches, "" if none; all workers call this."""
    return ", ".join(
        compared_facts.differing(compared_facts.of_all(workers, of_batch(batch), what))
    )


def of_batch(batch: Any) -> dict[str, str]:
    """Return a digest of each part of a batch, because only some parts may be random.

    Only numbers, text, and dense arrays or tensors have a digest. Other parts are omitted.
    """
    parts = [_content_of(leaf) for leaf in keras.tree.flatten(batch)]
    return {
        f"{EXAMPLES} {number}": sha256(part).hexdigest()[:12]
        for number, part in enumerate(parts, 1)
        if part is not None
    }


def _content_of(leaf: Any) -> bytes | None:
    if isinstance(leaf, tf.Tensor):
        return content(leaf)
    if hasattr(leaf, "__array__") and hasattr(leaf, "cpu"):  # a tensor of PyTorch
        leaf = np.asarray(leaf.cpu())
    if not isinstance(leaf, (np.ndarray, np.generic, int, float, str, bytes)):
        return None
    array = np.asarray(leaf)
    return str(array.tolist()).encode() if array.dtype.kind in "OSU" else array.tobytes()


def note_reading(source: Any) -> None:
    """Note that threads read a source from now on, and may call a user's code for it."""
    if source.calls_users:
        _read_now.add(source)


def note_read(source: Any) -> None:
    """Note that a source is no longer read."""
    _read_now.discard(source)


@contextmanager
def reading_ends() -> Iterator[None]:
    """Note after the context that the sources whose reading began in it are no longer read.

    Endless data have no end at which this could be noted, nor has a call that fails. Keras's own
    objects, or an exception's traceback, may keep such a source for long.
    """
    before = WeakSet(_read_now)
    try:
        yield
    finally:
        for source in [*_read_now]:
            if source not in before:
                note_read(source)


def leaving_generators() -> AbstractContextManager[None]:
    """Restore the random generators afterwards, unless threads that read data may use them."""
    return nullcontext() if _read_now else drawing_nothing()


def _drawing_nothing_of(source: Any) -> AbstractContextManager[None]:
    """Restore the random generators after a user's code has returned data; see Source.

    They are not restored while threads read another source, as during a validation. The threads
    would draw some of their numbers again.
    """
    are_others_read = any(one is not source for one in _read_now)
    return drawing_nothing() if source.asks_users and not are_others_read else nullcontext()


@contextmanager
def drawing_nothing() -> Iterator[None]:
    """Restore Python's and NumPy's random generators after the context."""
    python, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002  scripts draw from this one
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numbers)  # noqa: NPY002
