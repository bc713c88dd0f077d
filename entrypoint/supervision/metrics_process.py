"""METRICS_PORT: the process that answers Prometheus, beside the command.

The program is part of the trainer's package, because it needs a library. It calls `status` at each
scrape. The command does not depend on it, and never waits for it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from entrypoint.errors import how_it_ended
from entrypoint.log import Log
from entrypoint.supervision.child.child_process import NOTICES, ChildProcess
from entrypoint.supervision.child.command import become

SERVER = (sys.executable, "-I", "-m", "cluster_trainer.metrics_server")


class MetricsProcess:
    """The process, from the start of this worker to its end; without a port there is none."""

    def __init__(self, port: int | None, environment: Mapping[str, str], log: Log) -> None:
        self._child: ChildProcess | None = None
        self._log = log
        if port is None:
            return
        try:
            self._child = ChildProcess(
                lambda: become([*SERVER, str(port)], environment), ignores=NOTICES
            )
        except OSError as error:
            log.warning(f"no metrics: the process cannot be started: {error.strerror}")
        else:
            self._child.on_end = self._say
            log.info(f"metrics for Prometheus at port {port}, /metrics")

    def _say(self, status: int) -> None:
        self._log.warning(f"no more metrics: the process {how_it_ended(status)}")

    def end(self) -> None:
        """End the process."""
        if self._child:
            self._child.end()
        self._child = None
