"""Whether fewer workers may go on as MIN_WORKERS says."""

from __future__ import annotations

from entrypoint.errors import ConfigurationError, Problem

NAME = "MIN_WORKERS"
TENSORFLOW = "tensorflow"


def check_min_workers(
    least: int | None,
    workers: int,
    *,
    regroup_seconds: float,
    at_gate_seconds: int,
    collectives: str = "",
) -> None:
    """Raise ConfigurationError unless so many of all workers may go on without the others.

    Args:
        least: MIN_WORKERS; None: it is not given.
        workers: how many there are.
        regroup_seconds: REGROUP_SECONDS.
        at_gate_seconds: RENDEZVOUS_TIMEOUT.
        collectives: TRAINER_COLLECTIVES; "": it is not given.
    """
    if least is None:
        return
    problems = []
    fewest = workers // 2 + 1
    if not fewest <= least <= workers:
        problems.append(_out_of_range(least, fewest, workers))
    if least < workers and not at_gate_seconds:
        accepted = f"1 or more, if {NAME} is set: the remaining workers meet at the gate"
        problems.append(Problem("RENDEZVOUS_TIMEOUT", "0", accepted))
    elif least < workers and regroup_seconds > at_gate_seconds / 2:
        accepted = f"at most half of RENDEZVOUS_TIMEOUT ({at_gate_seconds}), which ends all waiting"
        problems.append(Problem("REGROUP_SECONDS", f"{regroup_seconds:.15g}", accepted))
    if least < workers and collectives.strip().lower() == TENSORFLOW:
        accepted = f"auto or ring, if {NAME} is less than {workers}, the number of workers"
        advice = "TensorFlow's cluster has to start again, complete, when a worker is lost."
        problems.append(Problem("TRAINER_COLLECTIVES", collectives, accepted, advice))
    if problems:
        raise ConfigurationError(problems)


def _out_of_range(least: int, fewest: int, workers: int) -> Problem:
    """Return what is wrong with a number of workers that may not go on, or are not there."""
    if workers == 1:
        return Problem(NAME, str(least), "1, where there is one worker")
    span = f"from {fewest} to {workers}" if fewest < workers else str(workers)
    accepted = f"{span}: more than half of the {workers} workers, and at most all"
    half = "Half of the workers cannot tell whether the others are lost or go on, too."
    return Problem(NAME, str(least), accepted, half if least < fewest else "")


def regroup_warning(least: int | None, *, is_given: bool) -> str | None:
    """Return what to say where REGROUP_SECONDS is given, and changes nothing."""
    if least is not None or not is_given:
        return None
    return f"REGROUP_SECONDS has no effect without {NAME}: the workers wait for all others"
