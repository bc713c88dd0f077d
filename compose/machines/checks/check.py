"""Checks all machines before anything is started, and lists all problems."""

from __future__ import annotations

from collections.abc import Sequence

from local_cluster.messages import EXIT_CONFIGURATION, EndError, say
from machines.checks import connections, facts
from machines.checks.facts import Facts
from machines.checks.own import Own
from machines.checks.problems import problems
from machines.image import Image
from machines.machine import Machine, at_once


def check(
    machines: Sequence[Machine], image: Image, project: str, own: Own, metrics_port: str = ""
) -> list[Facts]:
    """Check all machines at the same time, and return their facts.

    Connections are tested between the machines that have the image. The others need it first.

    Args:
        machines: all machines of the cluster.
        image: the workers' image.
        project: the cluster's name.
        own: the workers that this start replaces.
        metrics_port: METRICS_PORT of all workers; "": they have none.

    Raises:
        EndError: there are problems; the message has a sentence for each.
    """
    say(f"checking {len(machines)} machine(s)")
    told = at_once(lambda one: facts.ask(one, image, project, own.start), machines)
    found = problems(told, image, own, metrics_port)
    able = [one for one in told if one.has(image) and not _has_problem(one, found)]
    found += connections.problems(image.name, able, own)
    refuse(found)
    return told


def _has_problem(facts_of_one: Facts, found: Sequence[str]) -> bool:
    return any(sentence.startswith(f"{facts_of_one.machine.name}: ") for sentence in found)


def refuse(found: Sequence[str]) -> None:
    """Refuse to start if there are problems. Empty sentences do not count.

    Raises:
        EndError: there are problems; the message has these sentences.
    """
    sentences = [one for one in found if one]
    if sentences:
        what = "1 problem" if len(sentences) == 1 else f"{len(sentences)} problems"
        raise EndError(EXIT_CONFIGURATION, f"{what}; nothing was started:", *sentences)
