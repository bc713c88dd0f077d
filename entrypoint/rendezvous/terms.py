"""The terms on which a worker takes part in a meeting, and its time limits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from entrypoint.cluster.spec import ClusterSpec, Member, Task
from entrypoint.log import Say
from entrypoint.network.link import Link
from entrypoint.rendezvous.facts import Facts
from entrypoint.rendezvous.outcome import Fewer
from entrypoint.rendezvous.suspects import Suspects
from entrypoint.rendezvous.transport.network import Network
from entrypoint.rendezvous.transport.sockets import SocketNetwork
from entrypoint.rendezvous.transport.timing import Timing


def _unheard(_line: str) -> None:
    """Ignore a line."""


def _not_noted(_links: Sequence[Link]) -> None:
    """Ignore links."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The terms on which a worker takes part in a meeting: its identity, its facts, its limits."""

    spec: ClusterSpec
    task: Task
    facts: Facts
    timeout_seconds: float
    """The seconds for which it waits for others to come; 0 for no limit."""
    token: str | None
    say: Say
    timing: Timing
    start_seconds: float = 0.0
    """The seconds for which it waits for commands that are starting; 0 for no limit."""
    network: Network = field(default_factory=SocketNetwork)
    generation: int = 0
    """The newest ring that this worker was in; 0 for none."""
    ring_size: int = 0
    """The number of workers in that ring; 0 if it is not known, which counts as all."""
    asks: bool = False
    """Whether its command runs, and asks for its neighbours."""
    fewer: Fewer | None = None
    """The rules for continuing without some workers; None: all are needed. Worker 0's rules
    apply."""
    suspects: Suspects = field(default_factory=Suspects)
    """The knowledge about the others from earlier rings."""
    most_losses: float = inf
    """The number of losses in a row that are allowed before the ring is formed."""
    were_together: bool = False
    """Whether the workers that ask now have met before, and have logged it."""
    measures: bool = False
    """Whether the ring gets connections that measure the network. Worker 0 decides."""
    note_network: Callable[[Sequence[Link]], None] = _not_noted
    """Called with the links of a ring once they are measured."""
    prolong: Callable[[str], None] = _unheard
    """Called with the reason of the wait whenever the time limit is renewed."""

    @property
    def me(self) -> Member:
        """This worker and its address."""
        return next(member for member in self.spec.members if member.task == self.task)

    @functools.cached_property
    def places(self) -> dict[Task, int]:
        """Each worker's place in the list. The list may have thousands of entries."""
        return {member.task: place for place, member in enumerate(self.spec.members)}

    @property
    def everyone(self) -> tuple[int, ...]:
        """All places in the list."""
        return tuple(range(len(self.spec.members)))


COMING, STARTING = False, True
"""The two limits. STARTING: all missing workers were here, and their commands are starting."""


class Limit:
    """Two limits, for workers to come and for commands to start. Only one runs at a time.

    Switching restarts neither. Otherwise a worker that flaps would extend both.
    """

    def __init__(self, terms: Terms, clock: Callable[[], float]) -> None:
        self._lengths = {COMING: terms.timeout_seconds, STARTING: terms.start_seconds}
        self._spent = {COMING: 0.0, STARTING: 0.0}
        self.is_starting = COMING
        self._clock, self._since = clock, clock()

    @property
    def length_seconds(self) -> float:
        """The length of the current limit; 0 for no limit."""
        return self._lengths[self.is_starting]

    @property
    def left_seconds(self) -> float:
        """The rest of the current limit; infinite without a limit."""
        spent = self._spent[self.is_starting] + self._clock() - self._since
        return (self.length_seconds or inf) - spent

    def note(self, *, is_starting: bool) -> None:
        """Switch to the limit that runs from now on."""
        now = self._clock()
        self._spent[self.is_starting] += now - self._since
        self.is_starting, self._since = is_starting, now

    def renew(self, *, is_starting: bool) -> None:
        """Restart one of the two limits."""
        self.note(is_starting=self.is_starting)
        self._spent[is_starting] = 0.0
