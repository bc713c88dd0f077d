"""Watches for a preemption notice in a separate process, and then stops this worker."""

from __future__ import annotations

import os
import signal
import time

from entrypoint.errors import SIGNAL_CODES, how_it_ended
from entrypoint.log import Log
from entrypoint.supervision.child.child_process import NOTICES, ChildProcess
from entrypoint.supervision.child.ended import Ended
from entrypoint.supervision.child.helper_process import run_helper
from entrypoint.supervision.preemption.clouds import CLOUDS, Cloud, Notice
from entrypoint.supervision.preemption.metadata_server import MetadataError, MetadataServer


class PreemptionWatch:
    """The process that asks the metadata server, from this worker's start to its end."""

    def __init__(self, cloud: str, url: str | None, log: Log) -> None:
        self._cloud = CLOUDS[cloud]()
        self._server = MetadataServer(url or self._cloud.url)
        self._log = log
        self._child: ChildProcess | None = None

    def begin(self) -> Ended | None:
        """Start to watch; return why this worker must not start, if its machine is about to end.

        A restart policy may restart a container on a machine that is about to end. Such a worker
        must not take part in a meeting.
        """
        look = run_helper(self._look_once, "the check for a preemption notice", self._log)
        if look.stopped:
            return look
        if look.found:
            reason = f"{look.found}: not starting (PREEMPTION_NOTICE)"
            return Ended(SIGNAL_CODES + signal.SIGTERM, reason, stopped=True)
        supervisor = os.getpid()
        try:
            self._child = ChildProcess(lambda: self._watch(supervisor), ignores=NOTICES)
        except OSError as error:
            self._log.warning(f"no preemption notices: no process can start: {error.strerror}")
        else:
            self._child.on_end = self._say_ended
        return None

    def end(self) -> None:
        """End the process."""
        if self._child:
            self._child.end()
        self._child = None

    def _look_once(self) -> tuple[int, str]:
        try:
            notice = self._cloud.look(self._server, waits=False)
        except MetadataError:  # the watch reports it
            return 0, ""
        return 0, notice.text if notice and notice.is_end else ""

    def _watch(self, supervisor: int) -> int:
        """Ask until a notice comes, then stop the supervisor, which is this process's parent."""
        notice = wait_for_notice(self._cloud, self._server, self._log)
        self._log.warning(f"{notice.text}: stopping as after SIGTERM (PREEMPTION_NOTICE)")
        if os.getppid() == supervisor:
            os.kill(supervisor, signal.SIGTERM)
        return 0

    def _say_ended(self, status: int) -> None:
        if status:
            self._log.warning(f"no more preemption notices: the process {how_it_ended(status)}")


def wait_for_notice(cloud: Cloud, server: MetadataServer, log: Log) -> Notice:
    """Return the notice that the machine is about to end; log other news once."""
    is_trouble_said = is_risk_said = False
    while True:
        try:
            notice = cloud.look(server, waits=True)
        except MetadataError as error:
            if not is_trouble_said:
                log.warning(_trouble(cloud, server, error))
            is_trouble_said = True
        else:
            if notice and notice.is_end:
                return notice
            if notice and not is_risk_said:
                log.warning(f"{notice.text}; training continues (PREEMPTION_NOTICE)")
                is_risk_said = True
        time.sleep(cloud.pause_seconds)


def _trouble(cloud: Cloud, server: MetadataServer, error: MetadataError) -> str:
    text = (
        f"{cloud.name}'s metadata server at {server.url} gives no preemption notices: {error}. "
        f"Training continues, and the server is asked again every {cloud.pause_seconds:g} s."
    )
    return f"{text} {cloud.advice}".rstrip()
