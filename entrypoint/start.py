"""Runs a resolved start and returns the exit code: packages, settings, gate, supervision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from entrypoint.arguments import Request
from entrypoint.checks.gpu_machine import machine_warnings
from entrypoint.cluster.addresses import public_warning
from entrypoint.cluster.spec import ClusterSpec, Resolution, Task
from entrypoint.errors import EXIT_CONFIGURATION, STOP_CODES, render, say
from entrypoint.log import Log
from entrypoint.packages.requirements import Requirements
from entrypoint.settings.options import Options
from entrypoint.status.board import STARTING, Board
from entrypoint.supervision.child.child_process import become_subreaper, block_signals
from entrypoint.supervision.child.ended import Ended
from entrypoint.supervision.child.helper_process import run_helper
from entrypoint.supervision.failure_file import remove_failure
from entrypoint.supervision.metrics_process import MetricsProcess
from entrypoint.supervision.run import EXIT_NO_PROCESS, run
from entrypoint.supervision.supervisor import end

if TYPE_CHECKING:
    from entrypoint.supervision.preemption.watch import PreemptionWatch


@dataclass(frozen=True)
class ResolvedStart:
    """A resolved start."""

    request: Request
    resolution: Resolution | None
    options: Options
    environment: Mapping[str, str]
    """The command's variables."""
    requirements: Requirements | None = None
    """The packages that must be installed besides the image's."""
    status_places: tuple[Path, ...] = ()
    """The folders in which the status may be kept."""

    @property
    def cluster(self) -> tuple[ClusterSpec, Task] | None:
        """The cluster and this worker's task; None for one worker, and for an evaluator."""
        return cluster_of(self.resolution)

    @property
    def job(self) -> str:
        """The scheduler's job; "" if it is unknown."""
        return self.resolution.job if self.resolution else ""


def cluster_of(found: Resolution | None) -> tuple[ClusterSpec, Task] | None:
    """Return a cluster of several workers and this one's task; None if there is none."""
    if found is None or found.task is None or found.rank is None:
        return None
    return (found.spec, found.task) if len(found.spec.members) > 1 else None


def start(start: ResolvedStart, log: Log) -> int:
    """Install packages, meet the peers, run the command, and return the exit code."""
    # before signals are blocked, so that a stop also ends nvidia-smi, which may take seconds
    warnings = machine_warnings(start.environment)
    block_signals()  # from here on stop signals are queued, and none is lost
    become_subreaper()
    board = Board.put_up(log.worker, start.status_places)
    board.note(STARTING)
    metrics = MetricsProcess(start.options.metrics_port, start.environment, log)
    also = replace(log, also=board.line)
    watch = _preemption_watch(start.options, also)
    try:
        code = _start(start, warnings, also, board, watch)
    except Exception as error:  # noqa: BLE001 -- the end is reported in any case
        code = _failed(error, start.options, log)
    metrics.end()
    if watch:
        watch.end()
    board.note_end(code, was_stopped=code in STOP_CODES)
    return code


def _preemption_watch(options: Options, log: Log) -> PreemptionWatch | None:
    """Return the watch for preemption notices; None unless PREEMPTION_NOTICE is set."""
    if options.preemption_notice is None:
        return None
    from entrypoint.supervision.preemption.watch import PreemptionWatch  # noqa: PLC0415 -- seldom

    return PreemptionWatch(options.preemption_notice, options.preemption_url, log)


def _failed(error: Exception, options: Options, log: Log) -> int:
    """Return the exit code after a failure of the entrypoint; print a traceback if it is a bug."""
    if not isinstance(error, (OSError, MemoryError)):
        import traceback  # noqa: PLC0415 -- seldom needed

        say("".join(traceback.format_exception(error)).rstrip())
    return end(Ended(EXIT_NO_PROCESS, f"the entrypoint failed: {error!r}"), (), options, log)


def _start(
    start: ResolvedStart,
    warnings: Sequence[str],
    log: Log,
    board: Board,
    watch: PreemptionWatch | None,
) -> int:
    request, environment, options = start.request, start.environment, start.options
    remove_failure(options.failure_file, log)
    if watch and (told := watch.begin()):
        return end(told, (), options, log)
    board.note(STARTING, "looking for packages" if start.requirements else "")
    installed = _install(start, log)
    if installed.code:
        return end(installed, (), options, log)
    if start.resolution and (warning := public_warning(start.resolution.spec.addresses)):
        log.warning(warning)
    for warning in warnings:
        log.warning(warning)
    if start.cluster is None:
        return run(request, environment, options, log, peers=None, board=board)
    spec, task = start.cluster
    settings: Mapping[str, str] = {}
    if options.rendezvous_timeout_seconds:
        board.note(STARTING, "checking the settings that all workers must share")
        code, settings = _ask_trainer(start, log)
        if code is not None:
            return code
    # Imported once, before the forks: three processes need it.
    from entrypoint.peers import PeersOfStart  # noqa: PLC0415 -- a worker that is alone has none

    peers = PeersOfStart(
        spec=spec,
        task=task,
        request=request,
        environment=environment,
        options=options,
        settings=settings,
        log=log,
        board=board,
        job=start.job,
    )
    return run(request, environment, options, log, peers=peers.for_supervision(), board=board)


def _install(start: ResolvedStart, log: Log) -> Ended:
    """Install the user's packages if they are missing, before the gate."""
    requirements = start.requirements
    if requirements is None or requirements.is_installed():
        return Ended(0, "")

    def work() -> tuple[int, str]:
        from entrypoint.packages.install import install  # noqa: PLC0415 -- in a child, as below

        return install(requirements, start.environment, log)

    return run_helper(work, "the installation of packages", log)


def _ask_trainer(start: ResolvedStart, log: Log) -> tuple[int | None, Mapping[str, str]]:
    """Return the exit code if the check ends this start (else None), and the shared settings."""
    request, options = start.request, start.options
    if not request.is_trainer:
        return None, {}
    # Slow to import. Without peers, only the trainer itself checks its settings.
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
