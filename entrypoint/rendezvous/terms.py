"""What a worker comes to a meeting with, and how long it waits there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from entrypoint.cluster.spec import ClusterSpec, Member, Task
from entrypoint.log import Say
from entrypoint.rendezvous.facts import Facts
from entrypoint.rendezvous.outcome import Fewer
from entrypoint.rendezvous.suspects import Suspects
from entrypoint.rendezvous.transport.network import Network
from entrypoint.rendezvous.transport.sockets import SocketNetwork
from entrypoint.rendezvous.transport.timing import Timing


def _unheard(_line: str) -> None:
    """Take what nobody wants to hear."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a worker comes to a meeting with: who it is, what it knows, how long it waits."""

    spec: ClusterSpec
    task: Task
    facts: Facts
    timeout_seconds: float
    """How long it waits for others to come; 0 for no limit."""
    token: str | None
    say: Say
    timing: Timing
    start_seconds: float = 0.0
    """How long it waits for commands that start to ask; 0 for no limit."""
    network: Network = field(default_factory=SocketNetwork)
    generation: int = 0
    """The newest ring that this worker was in; 0 for none."""
    ring_size: int = 0
    """How many workers that had; 0: not known, and so all."""
    asks: bool = False
    """Whether its command runs, and asks for its neighbours."""
    fewer: Fewer | None = None
    """When the others are gone on without; None: never. Worker 0's counts."""
    suspects: Suspects = field(default_factory=Suspects)
    """What is known of the others from the rings before."""
    most_losses: float = inf
    """How often in a row somebody may be lost, or out of reach, before the ring is there."""
    were_together: bool = False
    """Whether those who ask now were met together before, and have said so."""
    prolong: Callable[[str], None] = _unheard
    """Is told, every few seconds, what is waited for while the time limit is renewed."""

    @property
    def me(self) -> Member:
        """This worker and its address."""
        return next(member for member in self.spec.members if member.task == self.task)

    @functools.cached_property
    def places(self) -> dict[Task, int]:
        """Each worker's place in the list; a list may have thousands."""
        return {member.task: place for place, member in enumerate(self.spec.members)}

    @property
    def everyone(self) -> tuple[int, ...]:
        """All places in the list."""
        return tuple(range(len(self.spec.members)))


COMING, STARTING = False, True
"""Whether all who are missing have been here, and their commands only start."""


class Limit:
    """A limit for those who come, and one for commands that start; only one of them runs at a time.

    A change from one to the other restarts neither, or a worker that flaps would extend both.
    """

    def __init__(self, terms: Terms, clock: Callable[[], float]) -> None:
        self._lengths = {COMING: terms.timeout_seconds, STARTING: terms.start_seconds}
        self._spent = {COMING: 0.0, STARTING: 0.0}
        self.is_starting = COMING
        self._clock, self._since = clock, clock()

    @property
    def length_seconds(self) -> float:
        """How long the present one is; 0 for no limit."""
        return self._lengths[self.is_starting]

    @property
    def left_seconds(self) -> float:
        """What is left of it; infinite without a limit."""
        spent = self._spent[self.is_starting] + self._clock() - self._since
        return (self.length_seconds or inf) - spent

    def note(self, *, is_starting: bool) -> None:
        """Note which of the two runs from now on."""
        now = self._clock()
        self._spent[self.is_starting] += now - self._since
        self.is_starting, self._since = is_starting, now

    def renew(self, *, is_starting: bool) -> None:
        """Restart one of them."""
        self.note(is_starting=self.is_starting)
        self._spent[is_starting] = 0.0
