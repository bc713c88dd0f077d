"""Starting a resolved command: the gate and the command as children of the supervisor."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from entrypoint.arguments import Request
from entrypoint.log import Log
from entrypoint.settings.options import Options
from entrypoint.supervision.child_process import ChildProcess
from entrypoint.supervision.command import become
from entrypoint.supervision.helper_process import HelperProcess, Look, wait_for
from entrypoint.supervision.restarts import Progress, Restarts
from entrypoint.supervision.supervisor import Job, supervise
from entrypoint.supervision.waiting import Ended, Waiter

STDIN = 0
"""The file descriptor."""


@dataclass(frozen=True, kw_only=True)
class Peers:
    """What is done about the peers of a cluster, each in a process of its own."""

    number: int
    """How many there are beside this worker."""
    meet: Look | None
    """The gate: waits for them, before the command starts."""
    watch_peers: Look
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
        watch_peers=peers.watch_peers if peers else None,
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
    watch_peers: Look | None

    def run(self, restart_count: int) -> tuple[Ended, Sequence[str]]:
        """Run the command to its end; return it with the last lines that it printed."""
        environment = {**self.environment, "RESTART_COUNT": str(restart_count)}
        # Before there are threads: what is forked beside them may find a lock taken for ever.
        helper = HelperProcess(self.watch_peers) if self.watch_peers else None
        if self.terminal:
            child = ChildProcess(lambda: become(self.command, environment), terminal=True)
            return self._attend(child, helper), ()
        # Here, because threads take time to import, and `explain` needs none.
        from entrypoint.supervision.output import Output  # noqa: PLC0415

        output = Output(self.log)

        def start() -> int:
            output.attach()
            return become(self.command, environment)

        child = ChildProcess(start)
        output.start()
        ended = self._attend(child, helper)
        return ended, output.finish()

    def _attend(self, child: ChildProcess, helper: HelperProcess | None) -> Ended:
        """Wait for the command's end, while the helper looks out for its peers."""
        waiter = Waiter(child, "the command", self.grace_seconds)
        if helper is None:
            return waiter.wait()
        ended = waiter.wait(helper.warning)
        helper.dismiss()
        return ended
