"""Prints the results as Markdown: medians, spread, and ratios within the rounds."""

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.clusters.measuring import Rates
from benchmarks.clusters.variants import Variant

HEAD = ("name", "what", "workers", "examples/s, median", "lowest", "highest", "in the same rounds")


def lines(variants: Mapping[str, Variant], rates: Rates) -> list[str]:
    """Return the table, a line for each variant that was measured."""
    head = [f"| {' | '.join(HEAD)} |", f"|{' --- |' * len(HEAD)}"]
    return [*head, *(line(name, variants[name], rates) for name in variants if name in rates)]


def line(name: str, variant: Variant, rates: Rates) -> str:
    """Return a variant's line."""
    own = rates[name]
    numbers = [f"{number:,.0f}" for number in (statistics.median(own), min(own), max(own))]
    beside = [
        f"{ratio(own, rates[other]):.2f} times {other}"
        for other in variant.beside
        if other in rates
    ]
    if variant.ideal in rates:
        share = ratio(own, rates[variant.ideal]) / variant.workers
        beside.insert(0, f"{share:.2f} of {variant.workers} times {variant.ideal}")
    cells = [name, variant.what, str(variant.workers), *numbers, ", ".join(beside)]
    return f"| {' | '.join(cells)} |"


def ratio(of: Sequence[float], to: Sequence[float]) -> float:
    """Return the median of the ratios within each round.

    Raises:
        ValueError: the two do not have the same number of rounds.
    """
    return statistics.median(one / other for one, other in zip(of, to, strict=True))
