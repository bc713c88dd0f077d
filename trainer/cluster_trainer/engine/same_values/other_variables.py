"""Refuses models whose variables differ between workers, and names the first that differs."""

import itertools
import json
from collections.abc import Sequence
from typing import Any, NoReturn

from cluster_trainer.collectives.renewable import RenewableRing
from cluster_trainer.collectives.workers import WorkersOfRing
from cluster_trainer.engine.compared_facts import of_all
from cluster_trainer.engine.replicas.step_context import name_of
from cluster_trainer.problems import ConfigurationError, Problem, told
from cluster_trainer.settings.task import names_of


def refuse(
    variables: Sequence[Any],
    forms: Sequence[str],
    ring: RenewableRing,
    call: str,
    digests: Sequence[bytes],
) -> NoReturn:
    """Refuse models, and name the first variable whose type or shape differs.

    All workers call this.

    Raises:
        ConfigurationError: see `alike.make`.
        PeerUnfit: see `alike.make`.
    """
    workers = WorkersOfRing(ring)
    paths = [*map(name_of, variables)]
    mine = {f"{n:09}": json.dumps(both) for n, both in enumerate(zip(forms, paths, strict=True))}
    everyone = [
        [tuple(json.loads(both)) for both in one.values()]
        for one in of_all(workers, mine, f"{call} (other variables)")
    ]
    columns = itertools.zip_longest(*([form for form, _ in each] for each in everyone))
    first = next(place for place, column in enumerate(columns) if len({*column}) > 1)
    values = [_described(each, first) for each in everyone]
    mine_is = values[workers.rank]
    advice = f"{told(names_of(workers.members), values)}. Each worker has to run the same script."
    workers.leave_out_or_part(digests, "a model's variables")
    raise ConfigurationError(
        [Problem("the model's variables", mine_is, "the same on all workers", advice)]
    )


def _described(variables: Sequence[tuple[str, str]], place: int) -> str:
    """Describe a worker's variables, (form, path), by their number and the one at `place`."""
    count = f"{len(variables)} variables"
    if place >= len(variables):
        return f"{count}, and no number {place + 1}"
    form, path = variables[place]
    return f"{count}, of which number {place + 1} is {path} ({form})"
