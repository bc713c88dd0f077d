"""Run a resolved start to its exit code: packages, the trainer's settings, gate, supervision."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from entrypoint.arguments import Request
from entrypoint.checks.machine import devices_of, machine_warnings, network_note
from entrypoint.checks.versions import image_version, tensorflow_version
from entrypoint.cluster.exposure import public_warning
from entrypoint.cluster.spec import ClusterSpec, Resolution, Task
from entrypoint.errors import (
    EXIT_CONFIGURATION,
    EXIT_NOBODY_CAME,
    EXIT_PEER_LOST,
    ConfigurationError,
    render,
)
from entrypoint.log import INFO, WARNING, Log
from entrypoint.packages.requirements import Requirements
from entrypoint.settings.options import Options
from entrypoint.settings.proxies import grpc_note
from entrypoint.status.board import STARTING, WAITING, Board
from entrypoint.supervision.child.child_process import become_subreaper, block_signals
from entrypoint.supervision.child.helper_process import EXIT_FAILED, retried, run_helper
from entrypoint.supervision.child.waiting import STOP_CODES, Ended
from entrypoint.supervision.failure_file import remove_failure
from entrypoint.supervision.metrics_process import MetricsProcess
from entrypoint.supervision.peers.beside import Peers, Watch
from entrypoint.supervision.peers.shared import Generations, SharedMark
from entrypoint.supervision.run import EXIT_NO_PROCESS, run
from entrypoint.supervision.supervisor import end

if TYPE_CHECKING:  # what a start of one worker does not need
    import socket

    from entrypoint.rendezvous.commands.group import Gate
    from entrypoint.rendezvous.facts import Facts
    from entrypoint.rendezvous.meeting import Fewer
    from entrypoint.supervision.peers.ask_socket import Serve


@dataclass(frozen=True)
class Start:
    """All that was found out about one start."""

    request: Request
    resolution: Resolution | None
    options: Options
    environment: Mapping[str, str]
    """The command's."""
    requirements: Requirements | None = None
    """What has to be there besides the image's packages."""
    status_places: tuple[Path, ...] = ()
    """The folders of which one holds what `status` shows."""

    @property
    def cluster(self) -> tuple[ClusterSpec, Task] | None:
        """With whom this worker trains, and as what; None alone, and for an evaluator."""
        found = self.resolution
        if found is None or found.task is None or found.rank is None:
            return None
        return (found.spec, found.task) if len(found.spec.members) > 1 else None


def start(start: Start, log: Log) -> int:
    """Install packages, meet the peers, run the command, and return the exit code."""
    # Before signals wait: this may ask nvidia-smi, for seconds, and a stop ends both then.
    warnings = machine_warnings(start.environment)
    block_signals()  # from here on a stop waits to be taken, and none is lost between two steps
    become_subreaper()
    board = Board.put_up(log.worker, start.status_places)
    board.note(STARTING)
    metrics = MetricsProcess(start.options.metrics_port, start.environment, log)
    try:
        code = _start(start, warnings, replace(log, also=board.line), board)
    except Exception as error:  # noqa: BLE001 -- whoever waits for this worker must hear of its end
        code = _failed(error, start.options, log)
    metrics.end()
    board.note_end(code, was_stopped=code in STOP_CODES)
    return code


def _failed(error: Exception, options: Options, log: Log) -> int:
    """Return the exit code where the entrypoint itself fails; a limit of the system's is no bug."""
    if not isinstance(error, (OSError, MemoryError)):
        sys.excepthook(type(error), error, error.__traceback__)
    return end(Ended(EXIT_NO_PROCESS, f"the entrypoint failed: {error!r}"), (), options, log)


def _start(start: Start, warnings: Sequence[str], log: Log, board: Board) -> int:
    request, environment, options = start.request, start.environment, start.options
    remove_failure(options.failure_file, log)
    board.note(STARTING, "looking for packages" if start.requirements else "")
    installed = _install(start, log)
    if installed.code:
        return end(installed, (), options, log)
    if start.resolution and (warning := public_warning(start.resolution.spec)):
        log.warning(warning)
    for warning in warnings:
        log.warning(warning)
    if start.cluster is None:
        return run(request, environment, options, log, peers=None, board=board)
    spec, task = start.cluster
    meet = None
    generations = Generations()
    settings: Mapping[str, str] = {}
    if options.rendezvous_timeout_seconds:
        board.note(STARTING, "checking the settings that all workers must share")
        code, settings = _ask_trainer(start, log)
        if code is not None:
            return code
        _import_for_children()
        meet = gate(spec, task, start, settings, seen=generations, log=log, board=board)
    asked = SharedMark()
    peers = Peers(
        number=len(spec.members) - 1,
        meet=meet,
        watch=watch_peers(spec, task, start, log, asked),
        serve=neighbours(spec, task, start, settings, seen=generations, log=log, board=board),
        asked=asked,
    )
    return run(request, environment, options, log, peers=peers, board=board)


def _import_for_children() -> None:
    """Import once what the gate, the peer watch and what connects neighbours would import thrice.

    The last of them would do so when the command asks, while all other workers wait for it. A start
    without a gate comes sooner to its command: the others import beside that.
    """
    from entrypoint.rendezvous import gate  # noqa: F401, PLC0415
    from entrypoint.rendezvous.commands import serve  # noqa: F401, PLC0415
    from entrypoint.rendezvous.watch import peer_watch  # noqa: F401, PLC0415


def _install(start: Start, log: Log) -> Ended:
    """Install the user's packages if they are not there; it is before the gate that others wait."""
    requirements = start.requirements
    if requirements is None or requirements.is_installed():
        return Ended(0, "")

    def work() -> tuple[int, str]:
        from entrypoint.packages.install import install  # noqa: PLC0415 -- in a child, as below

        return install(requirements, start.environment, log)

    return run_helper(work, "the installation of packages", log)


def _ask_trainer(start: Start, log: Log) -> tuple[int | None, Mapping[str, str]]:
    """Return the exit code if the trainer's answer ends this start, else None, and its settings.

    The settings are those that all workers must share.
    """
    request, options = start.request, start.options
    if not request.is_trainer:
        return None, {}
    # Slow to import; and a worker that is alone leaves the checking to the trainer itself.
    from entrypoint.checks.trainer_settings import answer_of_trainer, read_answer  # noqa: PLC0415

    def work() -> tuple[int, str]:
        seconds = options.rendezvous_timeout_seconds
        return answer_of_trainer(request.command, start.environment, seconds, log.line)

    ended = run_helper(work, "the check of the trainer's settings", log)
    if ended.code:
        return end(ended, (), options, log), {}
    checked = read_answer(ended.found)
    if checked.problems:
        message = render(checked.problems)
        log.message(message)
        return end(Ended(EXIT_CONFIGURATION, message), (), options, log), {}
    if checked.done:
        log.info(checked.done)
        return end(ended, (), options, log), {}
    return None, checked.settings


def watch_peers(spec: ClusterSpec, task: Task, start: Start, log: Log, asked: SharedMark) -> Watch:
    """Return what watches the peers while TensorFlow waits for them.

    A command that has asked for its neighbours has no such wait.
    """

    def work(trains: Callable[[], bool]) -> tuple[int, str]:
        from entrypoint.rendezvous.watch import peer_watch  # noqa: PLC0415 -- in a child, as below

        limit_seconds, note = start.options.startup_timeout_seconds, grpc_note(start.environment)
        try:
            reason = peer_watch.watch_peers(
                spec, task, limit_seconds, is_ring=asked.is_set, trains=trains, note=note
            )
        except peer_watch.NotKnownError as error:
            return EXIT_FAILED, str(error)
        return (EXIT_PEER_LOST, reason) if reason else (0, "")

    def watch(trains: Callable[[], bool]) -> tuple[int, str]:
        return retried(lambda: work(trains), "the watch over the peers", log)()

    return watch


def neighbours(  # noqa: PLR0913 -- as `gate` below
    spec: ClusterSpec,
    task: Task,
    start: Start,
    settings: Mapping[str, str],
    *,
    seen: Generations,
    log: Log,
    board: Board,
) -> Serve:
    """Return what connects the command with its neighbours, whenever it asks."""

    def serve(asks: socket.socket, meeting: str) -> None:
        # In a child that has slept until now.
        from entrypoint.rendezvous.commands.group import Group  # noqa: PLC0415
        from entrypoint.rendezvous.commands.serve import serve as answer  # noqa: PLC0415
        from entrypoint.rendezvous.meeting import Meeting  # noqa: PLC0415
        from entrypoint.rendezvous.terms import Terms  # noqa: PLC0415
        from entrypoint.rendezvous.transport.timing import Timing  # noqa: PLC0415

        terms = Terms(
            spec=spec,
            task=task,
            facts=_facts(spec, start, settings),
            timeout_seconds=start.options.rendezvous_timeout_seconds,
            start_seconds=start.options.startup_timeout_seconds,
            token=start.options.cluster_token,
            say=log.line,
            timing=Timing.of_commands(),
        )
        gate = _gate_again(start.options, len(spec.members), log, board)
        answer(asks, Group(terms, meeting=Meeting.read(meeting), seen=seen, gate=gate))

    return serve


def _gate_again(options: Options, workers: int, log: Log, board: Board) -> Gate | None:
    """Return how to meet the others while the command runs; None where there is no gate."""
    from entrypoint.rendezvous.commands.group import Gate, Waiting  # noqa: PLC0415 -- in a child

    at_gate, in_ring = options.rendezvous_timeout_seconds, options.startup_timeout_seconds
    within_seconds = at_gate + in_ring if in_ring else None
    others, fewer = workers - 1, _fewer(options, workers)

    @contextmanager
    def waiting() -> Iterator[Waiting]:
        with board.waiting(
            f"for {others} of {workers} workers", within_seconds=within_seconds
        ) as note:

            def say(level: str, line: str) -> None:
                note(line)
                log.line(level, line)

            yield Waiting(say, lambda line: note(line, anew=True))

    if not at_gate:
        return None
    return Gate(
        timeout_seconds=at_gate,
        # As many as commands that end with 75 may lose (`Restarts`); one is left out after two.
        most_losses=max(2 if fewer else 1, options.max_restarts * others),
        waiting=waiting,
        fewer=fewer,
    )


def _fewer(options: Options, workers: int) -> Fewer | None:
    from entrypoint.rendezvous.meeting import Fewer  # noqa: PLC0415 -- in a child, as above

    least = options.min_workers or workers
    return Fewer(least, options.regroup_seconds) if least < workers else None


def _facts(spec: ClusterSpec, start: Start, settings: Mapping[str, str]) -> Facts:
    from entrypoint.rendezvous.facts import Facts, host_list  # noqa: PLC0415 -- in a child, as below

    gpus = start.options.gpus_per_worker
    return Facts(
        hosts=host_list(spec),
        image=image_version(start.environment),
        tensorflow=tensorflow_version(),
        gpus_per_worker="" if gpus is None else str(gpus),
        settings=settings,
        devices=devices_of(start.request.command, start.environment),
        min_workers=str(start.options.min_workers or len(spec.members)),
    )


def gate(  # noqa: PLR0913 -- who, how, with what to compare, and where to say so
    spec: ClusterSpec,
    task: Task,
    start: Start,
    settings: Mapping[str, str],
    *,
    seen: Generations,
    log: Log,
    board: Board,
) -> Callable[[int], tuple[int, str]]:
    """Return what waits for the peers, as a `Work` that is told how many restarts there were."""
    options = start.options

    def say(level: str, line: str) -> None:
        board.note(WAITING, line, within_seconds=options.rendezvous_timeout_seconds)
        log.line(level, line)

    def meet(restart_count: int) -> tuple[int, str]:
        # In a child that has all of this already; without a gate nothing needs it.
        from entrypoint.rendezvous.gate import pass_gate  # noqa: PLC0415
        from entrypoint.rendezvous.outcome import (  # noqa: PLC0415
            NobodyCameError,
            PeersMissingError,
            PortTakenError,
        )
        from entrypoint.rendezvous.transport.timing import Timing  # noqa: PLC0415

        others = len(spec.members) - 1
        seconds = options.rendezvous_timeout_seconds
        board.note(WAITING, f"for {others} of {others + 1} workers", within_seconds=seconds)
        try:
            meeting = pass_gate(
                spec,
                task,
                _facts(spec, start, settings),
                timeout_seconds=seconds,
                token=options.cluster_token,
                say=say,
                timing=Timing.after_restarts(restart_count),
                generation=seen.newest,
                ring_size=seen.size,
                fewer=_fewer(options, len(spec.members)),
            )
        except NobodyCameError as error:
            return EXIT_NOBODY_CAME, str(error)
        except (PeersMissingError, PortTakenError) as error:
            return EXIT_PEER_LOST, str(error)
        except ConfigurationError as error:
            log.message(str(error))
            return EXIT_CONFIGURATION, str(error)
        if not restart_count:
            _say_the_way(spec, task, start.environment, log)
        return 0, meeting.text

    return meet


def _say_the_way(spec: ClusterSpec, task: Task, environment: Mapping[str, str], log: Log) -> None:
    """Name the way to the peers' GPUs, where NCCL may take another; the peers are there by now."""
    from entrypoint.checks.nccl_interface import SETTING  # noqa: PLC0415 -- in a child, as above
    from entrypoint.cluster.machine import resolve  # noqa: PLC0415

    peers = {str(one.task): one.address.host for one in spec.members if one.task != task}
    try:
        note = network_note(environment, peers, resolve)
    except Exception as error:  # noqa: BLE001 -- a note that fails does not keep from training
        note = f"the interface that leads to the peers could not be determined: {error}"
    if note:
        log.line(WARNING if environment.get(SETTING) else INFO, note)
