"""Starting a resolved command: the gate and the command as children of the supervisor."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from entrypoint.arguments import Request
from entrypoint.log import Log
from entrypoint.settings.options import Options
from entrypoint.supervision.attend import Attendant, Ended
from entrypoint.supervision.child import become
from entrypoint.supervision.process import Child
from entrypoint.supervision.restarts import Progress, Restarts
from entrypoint.supervision.scout import Look, Scout, wait_for
from entrypoint.supervision.supervisor import Job, supervise

STDIN = 0
"""The file descriptor."""


@dataclass(frozen=True, kw_only=True)
class Peers:
    """What is done about the peers of a cluster, each in a process of its own."""

    number: int
    """How many there are beside this worker."""
    meet: Look | None
    """The gate: waits for them, before the command starts."""
    look_out: Look
    """Looks whether they come as far as the command, while that waits for them."""


def run(
    request: Request,
    environment: Mapping[str, str],
    options: Options,
    log: Log,
    peers: Peers | None,
) -> int:
    """Run the command under supervision; return the exit code."""
    terminal = os.isatty(STDIN)
    path = options.progress_file or _new_progress_file(environment)
    command = CommandRunner(
        command=request.command,
        environment={**environment, "PROGRESS_FILE": path},
        log=log,
        grace_seconds=options.stop_grace_seconds,
        terminal=terminal,
        look_out=peers.look_out if peers else None,
    )
    # An interactive shell ends with the code of the last thing that was typed into it.
    limit = 0 if terminal and not request.is_trainer else options.max_restarts
    meet, others = (peers.meet, peers.number) if peers else (None, 0)
    job = Job(
        pass_gate=lambda: wait_for(meet, "the gate") if meet else Ended(0, ""),
        run_command=command.run,
        restarts=Restarts(limit, others, Progress(path)),
        peer_lost_exit_code=options.peer_lost_exit_code,
        failure_file=options.failure_file,
    )
    return supervise(job, log)


def _new_progress_file(environment: Mapping[str, str]) -> str:
    """Return a path that no other command has; whoever makes progress makes the file."""
    name = f"cluster-trainer-{os.getpid()}-{os.urandom(4).hex()}.progress"
    return os.path.join(environment.get("TMPDIR") or "/tmp", name)  # noqa: PTH118, S108


@dataclass(frozen=True, kw_only=True)
class CommandRunner:
    """Runs a command as a child, as often as it takes."""

    command: Sequence[str]
    environment: Mapping[str, str]
    log: Log
    grace_seconds: float
    terminal: bool
    look_out: Look | None

    def run(self, restart_count: int) -> tuple[Ended, Sequence[str]]:
        """Run the command to its end; return it with the last lines that it printed."""
        environment = {**self.environment, "RESTART_COUNT": str(restart_count)}
        # Before there are threads: what is forked beside them may find a lock taken for ever.
        scout = Scout(self.look_out) if self.look_out else None
        if self.terminal:
            child = Child(lambda: become(self.command, environment), terminal=True)
            return self._attend(child, scout), ()
        # Here, because threads take time to import, and `explain` needs none.
        from entrypoint.supervision.output import Output  # noqa: PLC0415

        output = Output(self.log)

        def start() -> int:
            output.attach()
            return become(self.command, environment)

        child = Child(start)
        output.start()
        ended = self._attend(child, scout)
        return ended, output.finish()

    def _attend(self, child: Child, scout: Scout | None) -> Ended:
        """Wait for the command's end, while the scout looks out for its peers."""
        attendant = Attendant(child, "the command", self.grace_seconds)
        if scout is None:
            return attendant.wait()
        ended = attendant.wait(scout.warning)
        scout.dismiss()
        return ended
