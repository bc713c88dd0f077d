"""Resolves the environment: asks all sources, compares them, and identifies this worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from entrypoint.cluster.spec import Resolution
from entrypoint.errors import ConfigurationError, Problem, shortened
from entrypoint.settings.environ import Environ, whole_number
from entrypoint.settings.environment_variable import CLUSTER_SOURCE, WORKER_HOSTS, WORKER_PORT
from entrypoint.settings.forms import LARGEST_PORT, parse_whole_number
from entrypoint.sources import AUTO, NONE, SOURCES
from entrypoint.sources.own_task import OwnTask, find_own_task

Answers = Mapping[str, Resolution]
"""The results of the sources, by CLUSTER_SOURCE's names, in order of precedence."""


@dataclass(frozen=True)
class Answer:
    """The resolved start."""

    resolution: Resolution | None = None
    """The cluster with the task known; None for one worker without TF_CONFIG."""
    own_task: OwnTask | None = None
    """The task and the reason, if it was found by this machine's name or address."""

    @property
    def tf_config_text(self) -> str | None:
        """TF_CONFIG for the command; None if there is no cluster."""
        return self.resolution.tf_config_text() if self.resolution else None

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of the cluster's members, in rank order; none if there is no cluster."""
        return self.resolution.hosts if self.resolution else ()

    @property
    def ports(self) -> tuple[int, ...]:
        """The members' ports."""
        return tuple(one.port for one in self.resolution.spec.addresses) if self.resolution else ()


def resolve(environ: Environ, find: Callable[[Resolution], OwnTask]) -> Answer:
    """Return the cluster that the environment describes; `find` determines a missing index.

    Raises ConfigurationError with every problem, including those of reading the environment.
    """
    choice, port, problems = _options(environ)
    answers, wrong = _ask(environ, choice, port)
    problems += wrong
    if choice == AUTO and not wrong:
        problems += _index_problems(environ, answers)
    if not problems:
        problems += _disagreements(answers)
    if choice in SOURCES and not answers and not wrong and not environ.broken:
        problems.append(_not_set(environ, choice))
    if problems:
        raise ConfigurationError(problems)
    return _placed(list(answers.values()), find)


def _options(environ: Environ) -> tuple[str, int, list[Problem]]:
    """Return source and port (defaults for invalid values), and the problems so far."""
    problems = list(environ.problems)
    choice, port = (environ.get("CLUSTER_SOURCE") or AUTO).strip(), int(WORKER_PORT.default or 0)
    if choice not in (AUTO, NONE, *SOURCES):
        name = environ.label("CLUSTER_SOURCE")
        problems.append(Problem(name, choice, CLUSTER_SOURCE.accepted))
        choice = AUTO
    try:
        port = whole_number(environ, "WORKER_PORT", 1, LARGEST_PORT)
    except ConfigurationError as error:
        problems += error.problems
    return choice, port, problems


def _ask(environ: Environ, choice: str, port: int) -> tuple[Answers, list[Problem]]:
    """Return the results of the chosen source, or of all, and their problems."""
    answers: dict[str, Resolution] = {}
    problems: list[Problem] = []
    for name, source in SOURCES.items():
        if choice in (AUTO, name):
            try:
                found = source.find(environ, port)
            except ConfigurationError as error:
                problems += error.problems
            else:
                answers |= {name: found} if found else {}
    if problems and answers:
        last = problems[-1]
        problems[-1] = replace(last, advice=f"{last.advice} {_pick(answers)}".lstrip())
    return answers, problems


def _not_set(environ: Environ, choice: str) -> Problem:
    missing = [name for name in SOURCES[choice].needs if not environ.given(name)]
    advice = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set."
    return Problem(
        environ.label("CLUSTER_SOURCE"), choice, "a source whose variables are set", advice
    )


def _index_problems(environ: Environ, answers: Answers) -> Iterable[Problem]:
    """Yield a problem if WORKER_INDEX stands alone, or contradicts the first source."""
    text = environ.get("WORKER_INDEX")
    if text is None or environ.given("WORKER_HOSTS"):
        return
    name = environ.label("WORKER_INDEX")
    first = next(iter(answers.values()), None)
    if first and first.task:
        if parse_whole_number(text) != first.rank:
            accepted = "nothing" if first.rank is None else str(first.rank)
            why = f"because {first.source} says that this is {first.task}"
            yield Problem(name, text, f"{accepted}, {why}", _pick(answers))
    elif not environ.broken:
        accepted = "an index together with WORKER_HOSTS, which is not set"
        yield Problem(name, text, accepted, f"For example WORKER_HOSTS={WORKER_HOSTS.example}.")


def _disagreements(answers: Answers) -> Iterable[Problem]:
    """Yield a problem for each source that contradicts the first."""
    names = list(answers)
    for name in names[1:]:
        first, other = answers[names[0]], answers[name]
        known = first.task is not None and other.task is not None
        if first.spec.addresses != other.spec.addresses or (known and first.rank != other.rank):
            yield Problem(
                f"{first.source} and {other.source}",
                f"{_summary(first)}; {_summary(other)}",
                "two that agree, or one of them",
                _pick([names[0], name]),
            )


def _summary(resolution: Resolution) -> str:
    """Return a source's result in at most 95 characters, so that two fit into a message."""
    task = f"{resolution.task} of " if resolution.task else ""
    addresses = ",".join(map(str, resolution.spec.addresses))
    return shortened(f"{resolution.source}: {task}{addresses}", 95)


def _pick(names: Iterable[str]) -> str:
    choices = [f"CLUSTER_SOURCE={name}" for name in names]
    return f"{' or '.join(choices)} picks one."


def _placed(resolutions: list[Resolution], find: Callable[[Resolution], OwnTask]) -> Answer:
    """Return the first resolution; its task may come from another, or from `find`."""
    if not resolutions:
        return Answer()
    first = resolutions[0]
    if first.task:
        return Answer(first)
    ranks = [other.rank for other in resolutions if other.rank is not None]
    if ranks:
        return Answer(replace(first, task=first.spec.members[ranks[0]].task))
    place = find(first)
    return Answer(replace(first, task=place.task), place)


def find_on_this_machine(resolution: Resolution) -> OwnTask:
    """Return this machine's place in the cluster. Raises ConfigurationError."""
    # imported here: sockets and threads are slow to import, and most workers have an index
    from entrypoint.cluster.own_machine import this_machine  # noqa: PLC0415

    return find_own_task(resolution, this_machine())
