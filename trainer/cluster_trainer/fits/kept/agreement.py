"""Whether all workers were started for the same run.

The gate has compared what the environment says. This compares what has become of it: the arguments
that a script gives, and the data that each worker has loaded.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256

import tensorflow as tf

from cluster_trainer.collectives.replicas import count_of, ring_of
from cluster_trainer.collectives.workers import Workers
from cluster_trainer.data.examples import DataSet, Examples
from cluster_trainer.engine.facts import Facts, differing, of_all, told
from cluster_trainer.problems import ConfigurationError, Problem
from cluster_trainer.settings.config import PREFIX, TrainerConfig, shown_name
from cluster_trainer.settings.task import Task

SETTINGS = "fit (settings and data)"
THE_SAME = "the same on all workers"
THE_SAME_DATA = "Every worker loads all examples in the same order, and is given its own slices."


def facts_of(config: TrainerConfig, data: DataSet, settings: Mapping[str, str]) -> dict[str, str]:
    """Return what must be the same on all workers: name -> value.

    Args:
        config: the settings.
        data: as this worker has loaded it.
        settings: what the run keeps of itself in a checkpoint.
    """
    parts = {"training": data.train, "test": data.test}
    examples = {name: part for name, part in parts.items() if isinstance(part, Examples)}
    shapes = {
        f"type and shape of the {name} inputs": f"{len(part)} of {part.described}"
        for name, part in examples.items()
    }
    labels = {f"SHA-256 of the {name} labels": _digest(part) for name, part in examples.items()}
    return {**config.shared_settings(), **settings, **shapes, **labels}


def _digest(part: Examples) -> str:
    return sha256(part.typed_labels.tobytes()).hexdigest()[:12]


def refuse_differing(workers: Workers, task: Task, facts: Mapping[str, str]) -> None:
    """Let all workers compare their facts; each of them must call this.

    Raises:
        ConfigurationError: with everything that differs, on every worker.
        PeerUnfit: where only workers differ that are new, on the others; see newcomers.py.
    """
    everyone = of_all(workers, facts, SETTINGS)
    if not everyone:
        return
    answers = [json.dumps(one) for one in everyone]
    if not workers.leave_out(answers, "its settings, its data or its model"):
        workers.part()
    names = [task.name_of(place) for place in workers.members]
    raise ConfigurationError(_problems(everyone, names, workers.rank))


def refuse_wire(config: TrainerConfig, strategy: tf.distribute.Strategy) -> None:
    """Refuse to send gradients as something else where no ring sends them.

    Raises:
        ConfigurationError: they would go through TensorFlow's collectives, as they are.
    """
    if config.wire != "float32" and count_of(strategy) > 1 and ring_of(strategy) is None:
        advice = (
            f"TensorFlow sums the gradients of this {type(strategy).__name__}, and only a ring of "
            "workers of one CPU each sends them so."
        )
        raise ConfigurationError([Problem(shown_name("wire"), config.wire, "float32", advice)])


def digest_of(names: Sequence[str]) -> str:
    """Return what tells one list of names from another."""
    return sha256("\n".join(names).encode()).hexdigest()[:12]


def _problems(everyone: Sequence[Facts], names: Sequence[str], me: int) -> list[Problem]:
    """Return a problem for each fact that differs.

    Args:
        everyone: the workers' facts, in the order of their ranks.
        names: the workers' own.
        me: this worker's rank.
    """
    problems = []
    for name, values in differing(everyone).items():
        listed = f"{told(names, values)}."
        advice = listed if name.startswith(PREFIX) else f"{listed} {THE_SAME_DATA}"
        problems.append(Problem(name, values[me], THE_SAME, advice))
    return problems
