"""`network`: measures the network between all workers, which run it at the same time."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from entrypoint.arguments import NETWORK
from entrypoint.cluster.spec import Resolution
from entrypoint.errors import (
    EXIT_CONFIGURATION,
    EXIT_NOT_WRITTEN,
    EXIT_PEER_LOST,
    STOP_CODES,
    ConfigurationError,
    Problem,
    all_of,
    put_out,
)
from entrypoint.log import Log
from entrypoint.network.link import Link
from entrypoint.network.protocol import THOROUGH
from entrypoint.network.question import read_question
from entrypoint.network.table import as_json, as_text
from entrypoint.peers import PeersOfStart
from entrypoint.rendezvous.facts import COMMAND
from entrypoint.rendezvous.gate import linked
from entrypoint.rendezvous.outcome import PeersMissingError, PortTakenError
from entrypoint.rendezvous.ring_measurement import measured_links
from entrypoint.rendezvous.transport.timing import Timing
from entrypoint.start import ResolvedStart, cluster_of
from entrypoint.status.board import RUNNING, WAITING, Board
from entrypoint.supervision.child.child_process import become_subreaper, block_signals
from entrypoint.supervision.child.helper_process import run_helper
from entrypoint.supervision.supervisor import end


def check_network(arguments: Sequence[str], resolution: Resolution | None) -> None:
    """Raise ConfigurationError for wrong arguments, and for a machine without a network."""

    def check_peers() -> None:
        if cluster_of(resolution) is None:
            received = str(resolution.task) if resolution and resolution.task else None
            accepted = "a cluster of two or more workers, each of which runs this command"
            advice = "WORKER_HOSTS and WORKER_INDEX name them, for example."
            raise ConfigurationError([Problem(NETWORK, received, accepted, advice)])

    all_of(lambda: read_question(arguments), check_peers)


def measure_network(start: ResolvedStart, log: Log) -> int:
    """Meet all workers, measure the links between them, print a table; return the exit code."""
    block_signals()
    become_subreaper()
    board = Board.put_up(log.worker, start.status_places)
    log = replace(log, also=board.line)
    question = read_question(start.request.command[1:])
    write = functools.partial(as_json if question.as_json else as_text, training=question.training)
    if start.cluster is None:
        raise AssertionError("check_network has refused this start")
    spec, task = start.cluster
    peers = PeersOfStart(
        spec=spec,
        task=task,
        request=start.request,
        environment=start.environment,
        options=start.options,
        settings={COMMAND: NETWORK},
        log=log,
        board=board,
        job=start.job,
    )
    measurement = Measurement(peers, board, log)
    ended = run_helper(lambda: measurement.work(write), "the measurement of the network", log)
    code = end(ended, (), start.options, log)
    if not code and not put_out(f"{ended.found}\n", "the table"):
        code = EXIT_NOT_WRITTEN
    board.note_end(code, was_stopped=code in STOP_CODES)
    return code


@dataclass(frozen=True)
class Measurement:
    """The meeting of all workers, and the measurement of their ring's links."""

    peers: PeersOfStart
    board: Board
    log: Log

    def work(self, write: Callable[[Sequence[Link]], str]) -> tuple[int, str]:
        """Return the result of a `Work`: the text that `write` makes of the links."""
        try:
            return 0, write(asyncio.run(self._links()))
        except (PeersMissingError, PortTakenError) as error:
            return EXIT_PEER_LOST, str(error)
        except ConfigurationError as error:
            self.log.message(str(error))
            return EXIT_CONFIGURATION, str(error)

    async def _links(self) -> list[Link]:
        options = self.peers.options
        seconds = options.rendezvous_timeout_seconds or options.startup_timeout_seconds

        def say(level: str, line: str) -> None:
            self.board.note(WAITING, line, within_seconds=seconds)
            self.log.line(level, line)

        self.board.note(WAITING, within_seconds=seconds)
        terms = self.peers.terms(Timing(), say)
        # All ask at once, because no command is starting.
        ring = await linked(replace(terms, timeout_seconds=seconds, asks=True))
        self.board.note(RUNNING, "measuring the network")
        members = self.peers.spec.members
        return await measured_links(ring, (ring.left, ring.right), members, THOROUGH)
