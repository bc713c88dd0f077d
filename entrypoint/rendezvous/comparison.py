"""Compares the cards of workers, and collects all differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from entrypoint.cluster.spec import CHIEF, ClusterSpec, Member, Task
from entrypoint.errors import Problem, listed
from entrypoint.rendezvous.facts import COMMAND, Card
from entrypoint.rendezvous.transport.messages import fitting

NOT_SET = "not set"


@dataclass(frozen=True)
class Difference:
    """A difference: the parts of a `Problem` without the worker's name."""

    what: str
    received: str
    accepted: str
    advice: str = ""


class Contradictions:
    """Collects differences; workers with the same difference share a problem."""

    def __init__(self) -> None:
        self._found: dict[Difference, dict[str, str]] = {}
        self._told: dict[Problem, None] = {}
        self._tellers: list[Card | None] = []
        self._accused: dict[str, Card] = {}

    def __bool__(self) -> bool:
        return bool(self._found or self._told)

    @property
    def accused(self) -> set[str]:
        """The boots of the workers that have a difference."""
        return self.accused_of(lambda _: True)

    def accused_of(self, kind: Callable[[Card], bool]) -> set[str]:
        """Return the boots of the workers of one kind that have a difference."""
        return {boot for boot, card in self._accused.items() if kind(card)}

    def are_all_of(self, kind: Callable[[Card], bool]) -> bool:
        """Whether all workers that have or report differences are of one kind."""
        cards = [*self._accused.values(), *self._tellers]
        return bool(cards) and all(card is not None and kind(card) for card in cards)

    def add(self, card: Card, where: str, difference: Difference) -> None:
        """Note a difference of the card's worker, which answered at `where`."""
        workers = self._found.setdefault(difference, {})
        workers.setdefault(card.boot, f"{card.task} at {where}")
        self._accused[card.boot] = card

    def take(self, problems: Iterable[Problem], teller: Card | None = None) -> None:
        """Note problems that another worker found; `teller` is that worker, if it is known."""
        self._told |= dict.fromkeys(problems)
        self._tellers.append(teller)

    def problems(self) -> tuple[Problem, ...]:
        """Return all problems without duplicates, as every worker will see them."""
        found = [
            Problem(
                f"{difference.what} of {listed(list(workers.values()))}",
                difference.received,
                difference.accepted,
                difference.advice,
            )
            for difference, workers in self._found.items()
        ]
        return fitting(dict.fromkeys([*found, *self._told]))


def in_a_line(problem: Problem) -> str:
    """Return a problem as one line, for the log of a worker that continues."""
    return f"{problem.name}: received {problem.received}; accepted: {problem.accepted}"


def other_hosts(theirs: str, own: str, me: Member) -> Difference:
    """Return a difference between two host lists."""
    advice = "All workers need the same list in the same order."
    return Difference("host list", theirs, f"{own}, as {_named(me)} has", advice)


def wrong_index(spec: ClusterSpec, task: Task, expected: Member) -> Difference:
    """Return the difference of a worker that answers at another worker's address."""
    return Difference(
        _index_name(spec),
        _index(spec, task),
        f"{_index(spec, expected.task)}, because it answers at {expected.task}'s address "
        f"{expected.address}",
        f"If the index is right, the list or the name {expected.address.host} is wrong.",
    )


def same_index(spec: ClusterSpec, task: Task, other: str) -> Difference:
    """Return the difference of a worker with the same index as another process, at `other`."""
    return _taken(spec, task, f"Another {task} runs at {other}.")


def replaced(spec: ClusterSpec, task: Task, other: str) -> Difference:
    """Return the difference of a worker that another process at `other` has replaced."""
    advice = f"Another {task} runs at {other}. It was in a later ring, so it has replaced this one."
    return _taken(spec, task, advice)


def replaced_chief(spec: ClusterSpec, newer: Member) -> Difference:
    """Return the difference of a worker 0 that was not in another worker's newest ring."""
    task = spec.chief.task
    advice = f"{_named(newer)} was in a later ring, with another {task} in this one's place."
    return _taken(spec, task, advice)


def _taken(spec: ClusterSpec, task: Task, advice: str) -> Difference:
    accepted = "an index that no other worker has"
    return Difference(_index_name(spec), _index(spec, task), accepted, advice)


def other_versions(theirs: Card, mine: Card, me: Member) -> Iterable[Difference]:
    """Yield a difference for each value that is set on both cards, and differs."""
    same_image = "Use the same image everywhere."
    same_code = "Copy the same folder to every machine."
    one_kind = "Is --gpus all missing on one worker? CUDA_VISIBLE_DEVICES=-1 hides GPUs."
    for what, their, own, advice in (
        ("image version", theirs.image, mine.image, same_image),
        ("TensorFlow version", theirs.tensorflow, mine.tensorflow, same_image),
        ("GPUS_PER_WORKER", theirs.gpus_per_worker, mine.gpus_per_worker, ""),
        ("kind of device to train on", theirs.devices, mine.devices, one_kind),
        ("MIN_WORKERS", theirs.min_workers, mine.min_workers, ""),
        ("WORKSPACE_DIGEST", theirs.workspace, mine.workspace, same_code),
    ):
        if their and own and their != own:
            yield Difference(what, their, f"{own}, as {_named(me)} has", advice)


def other_settings(theirs: Card, mine: Card, me: Member) -> Iterable[Difference]:
    """Yield a difference for each setting of the trainer that differs."""
    if theirs.settings_digest == mine.settings_digest:
        return
    if _command(theirs.settings) != _command(mine.settings):
        their, own = (_command(settings) for settings in (theirs.settings, mine.settings))
        yield Difference("command", their, f"{own}, as {_named(me)} runs")
        return
    names = sorted({*theirs.settings, *mine.settings})
    pairs = [(n, theirs.settings.get(n, NOT_SET), mine.settings.get(n, NOT_SET)) for n in names]
    differing = [pair for pair in pairs if pair[1] != pair[2]]
    hidden = ("the trainer's settings", "other values", "the same values")
    for name, their, own in differing or [hidden]:
        yield Difference(name, their, f"{own}, as {_named(me)} has")


def _command(settings: Mapping[str, str]) -> str:
    other = "the trainer" if settings else "a command that is not the trainer"
    return settings.get(COMMAND, other)


def _named(me: Member) -> str:
    return f"{me.task} at {me.address}"


def _index_name(spec: ClusterSpec) -> str:
    own_type = any(member.task.type == CHIEF for member in spec.members)
    return 'TF_CONFIG "task"' if own_type else "WORKER_INDEX"


def _index(spec: ClusterSpec, task: Task) -> str:
    return str(task.index) if _index_name(spec) == "WORKER_INDEX" else str(task)
