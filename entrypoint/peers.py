"""The peers of one start: the gate, the peer watch, and the command's rings.

It is imported before any of these is forked. A worker without peers does not import it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from entrypoint.arguments import Request
from entrypoint.checks.gpu_machine import devices_of, network_note
from entrypoint.checks.nccl_interface import SETTING
from entrypoint.checks.versions import image_version, tensorflow_version
from entrypoint.cluster.own_machine import resolve
from entrypoint.cluster.spec import ClusterSpec, Task
from entrypoint.errors import (
    EXIT_CONFIGURATION,
    EXIT_NOBODY_CAME,
    EXIT_PEER_LOST,
    ConfigurationError,
)
from entrypoint.log import INFO, WARNING, Log, Say
from entrypoint.rendezvous.command_rings.group import Group, Waiting
from entrypoint.rendezvous.command_rings.serve import serve
from entrypoint.rendezvous.facts import Facts, host_list
from entrypoint.rendezvous.gate import pass_gate
from entrypoint.rendezvous.generations import Generations
from entrypoint.rendezvous.outcome import (
    Fewer,
    Meeting,
    NobodyCameError,
    PeersMissingError,
    PortTakenError,
)
from entrypoint.rendezvous.terms import Terms
from entrypoint.rendezvous.transport.timing import Timing
from entrypoint.rendezvous.watch import peer_watch
from entrypoint.settings.options import Options
from entrypoint.settings.unrelated_variables import grpc_note
from entrypoint.status.board import WAITING, Board
from entrypoint.supervision.child.helper_process import EXIT_FAILED, retried
from entrypoint.supervision.peers.beside import Peers, SharedMark


@dataclass(frozen=True, kw_only=True)
class PeersOfStart:
    """The peers of one start, with everything that the gate, the watch and the rings need."""

    spec: ClusterSpec
    task: Task
    request: Request
    environment: Mapping[str, str]
    options: Options
    settings: Mapping[str, str]
    """The trainer's settings that all workers must share."""
    log: Log
    board: Board
    job: str = ""
    """The scheduler's job; "" if it is unknown."""
    seen: Generations = field(default_factory=Generations)
    asked: SharedMark = field(default_factory=SharedMark)

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return len(self.spec.members)

    @property
    def has_gate(self) -> bool:
        """Whether workers meet before a command starts."""
        return self.options.rendezvous_timeout_seconds > 0

    @property
    def most_losses(self) -> int:
        """The number of losses that a meeting allows: the limit of restarts (`Restarts`).

        With MIN_WORKERS it is at least two, because a worker is left out after two losses.
        """
        return max(2 if self.fewer else 1, self.options.max_restarts * (self.workers - 1))

    @property
    def fewer(self) -> Fewer | None:
        """The rules for continuing without some workers; None: all are needed."""
        least = self.options.min_workers or self.workers
        return Fewer(least, self.options.regroup_seconds) if least < self.workers else None

    def for_supervision(self) -> Peers:
        """Return the functions that the supervisor calls, each in its own process."""
        return Peers(
            number=self.workers - 1,
            meet=self.meet if self.has_gate else None,
            watch=self.watch,
            serve=self.serve,
            asked=self.asked,
        )

    def meet(self, restart_count: int) -> tuple[int, str]:
        """Meet the peers at the gate after `restart_count` restarts. Returns a `Work`'s result."""
        seconds = self.options.rendezvous_timeout_seconds

        def say(level: str, line: str) -> None:
            self.board.note(WAITING, line, within_seconds=seconds)
            self.log.line(level, line)

        self.board.note(WAITING, self._for_others, within_seconds=seconds)
        try:
            meeting = pass_gate(self.terms(Timing.after_restarts(restart_count), say))
        except NobodyCameError as error:
            return EXIT_NOBODY_CAME, str(error)
        except (PeersMissingError, PortTakenError) as error:
            return EXIT_PEER_LOST, str(error)
        except ConfigurationError as error:
            self.log.message(str(error))
            return EXIT_CONFIGURATION, str(error)
        if not restart_count:
            self._say_the_way()
        return 0, meeting.text

    def watch(self, trains: Callable[[], bool]) -> tuple[int, str]:
        """Watch the peers while TensorFlow waits for them. Returns a `Work`'s result.

        A command that has asked for its neighbours trains over a ring, and is not watched.
        """

        def work() -> tuple[int, str]:
            try:
                reason = peer_watch.watch_peers(
                    self.spec,
                    self.task,
                    self.options.startup_timeout_seconds,
                    is_ring=self.asked.is_set,
                    trains=trains,
                    note=grpc_note(self.environment),
                )
            except peer_watch.NotKnownError as error:
                return EXIT_FAILED, str(error)
            return (EXIT_PEER_LOST, reason) if reason else (0, "")

        return retried(work, "the watch over the peers", self.log)()

    def serve(self, asks: socket.socket, meeting: str) -> None:
        """Connect the command with its neighbours each time it asks for them."""
        group = Group(
            self.terms(Timing.of_commands(), self.log.line),
            meeting=Meeting.read(meeting),
            seen=self.seen,
            waiting=self._waiting if self.has_gate else None,
        )
        serve(asks, group)

    @contextmanager
    def _waiting(self) -> Iterator[Waiting]:
        in_ring = self.options.startup_timeout_seconds
        within = self.options.rendezvous_timeout_seconds + in_ring if in_ring else None
        with self.board.waiting(self._for_others, within_seconds=within) as note:

            def say(level: str, line: str) -> None:
                note(line)
                self.log.line(level, line)

            yield Waiting(say, lambda line: note(line, anew=True))

    @property
    def _for_others(self) -> str:
        return f"for {self.workers - 1} of {self.workers} workers"

    def terms(self, timing: Timing, say: Say) -> Terms:
        """Return the terms on which this worker takes part in a meeting."""
        return Terms(
            spec=self.spec,
            task=self.task,
            facts=self._facts(),
            timeout_seconds=self.options.rendezvous_timeout_seconds,
            start_seconds=self.options.startup_timeout_seconds,
            token=self.options.cluster_token,
            say=say,
            timing=timing,
            generation=self.seen.newest,
            ring_size=self.seen.size,
            fewer=self.fewer,
            most_losses=self.most_losses,
            note_network=self.board.note_network,
        )

    def _facts(self) -> Facts:
        gpus = self.options.gpus_per_worker
        return Facts(
            hosts=host_list(self.spec),
            image=image_version(self.environment),
            tensorflow=tensorflow_version(),
            gpus_per_worker="" if gpus is None else str(gpus),
            settings=self.settings,
            devices=devices_of(self.request.command, self.environment),
            min_workers=str(self.options.min_workers or self.workers),
            workspace=self.options.workspace_digest or "",
            job=self.job,
        )

    def _say_the_way(self) -> None:
        """Log the interface that leads to the peers, if NCCL may choose another one."""
        others = (one for one in self.spec.members if one.task != self.task)
        peers = {str(one.task): one.address.host for one in others}
        try:
            note = network_note(self.environment, peers, resolve)
        except Exception as error:  # noqa: BLE001 -- a failed note does not stop training
            note = f"the interface that leads to the peers could not be determined: {error}"
        if note:
            self.log.line(WARNING if self.environment.get(SETTING) else INFO, note)
