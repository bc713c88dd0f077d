"""Compares facts between workers, as strings."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256

from cluster_trainer.collectives.workers import WORD, Workers

Facts = Mapping[str, str]
"""Name -> value."""


def of_all(workers: Workers, facts: Facts, what: str) -> list[dict[str, str]]:
    """Return every worker's facts, in rank order; an empty list if all are the same.

    All workers call this with the same purpose, `what`; see Workers.
    """
    content = json.dumps(facts, sort_keys=True).encode()
    digest = int.from_bytes(sha256(content).digest()[: WORD.itemsize], signed=True)
    if len(set(workers.gather(digest, what))) == 1:
        return []
    contents = [
        workers.broadcast(content if rank == workers.rank else None, rank, what)
        for rank in range(workers.count)
    ]
    return [dict(json.loads(one)) for one in contents]


def differing(everyone: Sequence[Facts]) -> dict[str, list[str]]:
    """Return each fact that differs between workers, with all workers' values in rank order."""
    names = sorted({name for facts in everyone for name in facts})
    values = {name: [facts.get(name, "") for facts in everyone] for name in names}
    return {name: found for name, found in values.items() if len(set(found)) > 1}
