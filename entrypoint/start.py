"""From a resolved start to its exit code: the trainer's settings, the gate, supervision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from entrypoint.arguments import Request
from entrypoint.cluster import Resolution
from entrypoint.errors import EXIT_CONFIGURATION, EXIT_PEER_LOST, ConfigurationError, render
from entrypoint.facts import image_version, tensorflow_version
from entrypoint.failure import write_failure
from entrypoint.log import Log
from entrypoint.options import Options
from entrypoint.run import Peers, run
from entrypoint.scout import Look


@dataclass(frozen=True)
class Start:
    """All that was found out about one start."""

    request: Request
    resolution: Resolution | None
    options: Options
    environment: Mapping[str, str]
    """The command's."""

    @property
    def has_peers(self) -> bool:
        """Whether this worker trains together with others; an evaluator does not."""
        resolution = self.resolution
        return bool(resolution and resolution.rank is not None and len(resolution.spec.members) > 1)


def start(start: Start, log: Log) -> int:
    """Meet the peers, run the command, and return the exit code."""
    options = start.options
    if not start.has_peers:
        return run(start.request, start.environment, options, log, None)
    if not options.rendezvous_timeout_seconds:
        peers = Peers(meet=None, look_out=look_out(start))
        return run(start.request, start.environment, options, log, peers)
    settings: Mapping[str, str] = {}
    if start.request.is_trainer:
        # Slow to import; and a worker that is alone leaves the checking to the trainer itself.
        from entrypoint.trainer_check import check_trainer  # noqa: PLC0415

        checked = check_trainer(start.request.command, start.environment)
        if checked.problems:
            log.message(render(checked.problems))
            write_failure(options.failure_file, log, render(checked.problems))
            return EXIT_CONFIGURATION
        settings = checked.settings
    peers = Peers(meet=gate(start, settings, log), look_out=look_out(start))
    return run(start.request, start.environment, options, log, peers)


def look_out(start: Start) -> Look:
    """Return what watches the peers while TensorFlow waits for them."""

    def look() -> tuple[int, str]:
        from entrypoint.rendezvous import lookout  # noqa: PLC0415

        resolution = start.resolution
        assert resolution and resolution.task  # noqa: S101, PT018 -- has_peers says so
        limit = start.options.startup_timeout_seconds
        reason = lookout.look_out(resolution.spec, resolution.task, limit)
        return (EXIT_PEER_LOST, reason) if reason else (0, "")

    return look


def gate(start: Start, settings: Mapping[str, str], log: Log) -> Look:
    """Return what waits for the peers of this start."""

    def meet() -> tuple[int, str]:
        # In a child: nothing else needs what this imports.
        from entrypoint.rendezvous.errors import PeersMissingError  # noqa: PLC0415
        from entrypoint.rendezvous.facts import Facts  # noqa: PLC0415
        from entrypoint.rendezvous.gate import pass_gate  # noqa: PLC0415

        resolution, options = start.resolution, start.options
        assert resolution and resolution.task  # noqa: S101, PT018 -- has_peers says so
        facts = Facts(
            hosts=tuple(f"{member.task}={member.address}" for member in resolution.spec.members),
            image=image_version(start.environment),
            tensorflow=tensorflow_version(),
            gpus_per_worker="" if options.gpus_per_worker is None else str(options.gpus_per_worker),
            settings=settings,
        )
        try:
            pass_gate(
                resolution.spec,
                resolution.task,
                facts,
                timeout_seconds=options.rendezvous_timeout_seconds,
                token=options.cluster_token,
                say=log.line,
            )
        except PeersMissingError as error:
            return EXIT_PEER_LOST, str(error)
        except ConfigurationError as error:
            log.message(str(error))
            return EXIT_CONFIGURATION, str(error)
        return 0, ""

    return meet
