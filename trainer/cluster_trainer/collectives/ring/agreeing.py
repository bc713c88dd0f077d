"""Checks that two neighbours make the same call, and describes the difference."""

from dataclasses import replace

import numpy as np

from cluster_trainer.collectives.ring.errors import OtherCall, OutOfStep
from cluster_trainer.collectives.ring.headers import Header, Operation

DTYPES = tuple(map(np.dtype, ("float32", "float64", "int32", "int64", "float16")))
WIRES = (None, "bfloat16")
"""The number formats on the wire; None: unchanged."""
LONGEST = 2**40
"""The largest length in bytes; a larger one is invalid."""


def agreed(mine: Header, received: bytes, *, any_length: bool = False) -> Header:
    """Return the left neighbour's header.

    Args:
        mine: this rank's header.
        received: the bytes of the left neighbour's header.
        any_length: whether only the sender knows the length of the content.

    Raises:
        OtherCall: the neighbour's program is in a different call.
        OutOfStep: the neighbour is in another ring or operation, or has sent invalid bytes.
    """
    rank = (mine.rank - 1) % mine.size
    try:
        theirs = Header.unpack(received)
    except ValueError as problem:
        raise OutOfStep(f"rank {rank} sent an invalid operation: {problem}", rank) from problem
    free = any_length and theirs.length <= LONGEST
    if theirs == replace(mine, rank=rank, length=theirs.length if free else mine.length):
        return theirs
    is_same_ring = (theirs.generation, theirs.size) == (mine.generation, mine.size)
    calls = [
        (one.what, one.kind, one.detail, 0 if any_length else one.length) for one in (theirs, mine)
    ]
    # Their operation may be an earlier one: this rank may have only sent in it, as in a broadcast.
    if is_same_ring and theirs.operation <= mine.operation and calls[0] != calls[1]:
        raise OtherCall(_other_call(theirs, mine), rank)
    text = f"out of step: the left neighbour calls {theirs}; this rank calls {mine}"
    raise OutOfStep(text, rank)


def _other_call(theirs: Header, mine: Header) -> str:
    """Return a text about the calls of two ranks, for the author of the program."""
    there, here = (header.what or "something without a name" for header in (theirs, mine))
    if there == here:
        return (
            f"out of step: at {here} the worker of rank {theirs.rank} {_in_words(theirs)}, that of "
            f"rank {mine.rank} {_in_words(mine)}. All workers need the same program, model and "
            "settings, as TRAINER_WIRE."
        )
    return (
        f"out of step: the worker of rank {theirs.rank} is at {there}, that of rank {mine.rank} "
        f"at {here}. All workers must make the same calls in the same order: all of them call "
        "fit, evaluate and predict, never the chief alone."
    )


def _in_words(header: Header) -> str:
    """Return a text about a rank's operation, with a verb."""
    if header.kind == Operation.ALL_REDUCE:
        kind, wire = divmod(header.detail, len(WIRES))
        name = DTYPES[kind].name if kind < len(DTYPES) else f"unknown type {header.detail}"
        way = f", sent as {WIRES[wire]}" if WIRES[wire] and kind < len(DTYPES) else ""
        return f"sums {header.length:,} numbers of {name}{way}"
    words: dict[int, str] = {
        Operation.SIZES: "gathers",
        Operation.ALL_GATHER: f"gathers {header.length:,} bytes",
        Operation.BROADCAST: f"has a broadcast of rank {header.detail}",
        Operation.BARRIER: "waits for all",
    }
    return words.get(header.kind, f"has an operation of unknown kind {header.kind}")
