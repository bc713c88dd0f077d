"""The conclusion of a self-test: the rates, and the best collectives between the machines."""

from collections.abc import Mapping, Sequence
from typing import Any

from cluster_trainer.selftest.parts import ALL, ONE, RING, TENSORFLOW
from cluster_trainer.selftest.table import Row, State

WAYS = (ONE, ALL, RING, TENSORFLOW)
MUCH = 1.25
"""TensorFlow's collectives are recommended if they are more than this many times as fast. Otherwise
the ring is, which survives losses and has no port that runs strangers' code."""

TAKE_TENSORFLOW = (
    "Between these machines, use TensorFlow's collectives: they are {:.1f} times as fast as the "
    "ring. Create a MultiWorkerMirroredStrategy in your script, or set "
    "TRAINER_COLLECTIVES=tensorflow for the built-in trainer. Close their ports to others first "
    "(docs/how-to/firewall.md)."
)
TAKE_RING = (
    "Between these machines, use the ring: it is {} as TensorFlow's collectives, and survives "
    "losses. Train without a strategy in your script, or set TRAINER_COLLECTIVES=ring for the "
    "built-in trainer."
)
ONE_IS_FASTER = (
    "This small model trains {:.1f} times as fast on one machine as on all: larger models and "
    "batches gain more (docs/how-to/slow-networks.md)."
)


def conclusion(rows: Sequence[Row]) -> list[str]:
    """Return sentences: the rates, and which collectives to use between the machines."""
    facts = {row.name: row.facts for row in rows if row.state == State.HELD and row.name in WAYS}
    if not facts:
        return []
    rates = {name: float(one["examples_per_second"]) for name, one in facts.items()}
    return [_rates(rates, next(iter(facts.values()))), *_way(rates), *_one_machine(rates)]


def _rates(rates: Mapping[str, float], facts: Mapping[str, Any]) -> str:
    listed = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
    size = f"{facts['parameters'] / 1e6:.1f} million parameters, batches of {facts['batch']}"
    return f"Examples per second ({size}): {listed}."


def _way(rates: Mapping[str, float]) -> list[str]:
    if RING not in rates or TENSORFLOW not in rates:
        return []
    ratio = rates[TENSORFLOW] / rates[RING]
    if ratio > MUCH:
        return [TAKE_TENSORFLOW.format(ratio)]
    speed = f"{1 / ratio:.1f} times as fast" if ratio < 1 / MUCH else "as fast"
    return [TAKE_RING.format(speed)]


def _one_machine(rates: Mapping[str, float]) -> list[str]:
    here = max((rates[name] for name in (ONE, ALL) if name in rates), default=0.0)
    together = max((rates[name] for name in (RING, TENSORFLOW) if name in rates), default=here)
    if together >= here:
        return []
    return [ONE_IS_FASTER.format(here / together)]
