"""Stand in for the entrypoints of several workers on one machine: connect those that ask.

Everything else is real. The workers are processes, `python -m trainer` or a script, and they sum
over a ring of sockets.
"""

import json
import os
import re
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import forks
import numpy as np

SECONDS = 300.0  # of a busy machine
PAUSE_SECONDS = 0.02
SIGN_SECONDS = 10.0
LONGEST_ASK = 4096


class Worker:
    """One worker; `start` replaces its process after a kill."""

    def __init__(self, rank: int, size: int, folder: Path, command: list[str], **settings: str):
        self.rank, self.folder, self.command = rank, folder, command
        hosts = [f"127.0.0.1:{4000 + index}" for index in range(size)]
        task = {"type": "worker", "index": rank}
        self.variables = {
            "TF_CONFIG": json.dumps({"cluster": {"worker": hosts}, "task": task}),
            "TRAINER_COLLECTIVES": "ring",
            "TRAINER_RUN_DIR": str(folder / "run"),
            "PROGRESS_FILE": str(folder / f"{os.urandom(4).hex()}.progress"),
            "STATUS_FILE": str(folder / f"status-{rank}.json"),
            **settings,
        }
        self.starts, self.was_killed = 0, False

    def start(self, *, is_late: bool = False) -> None:
        """Start a process with a socket to ask on; `is_late` if the others already train."""
        self.asks, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        variables = {
            "CLUSTER_COMES_LATE": str(int(is_late)),
            "RESTART_COUNT": str(self.starts),
        }
        self.log = self.folder / f"log-{self.rank}-{self.starts}"
        with theirs:
            environ = os.environ | self.variables | variables
            self.process = forks.start(self.command, environ, self.log, asks=theirs)
        self.starts, self.was_killed = self.starts + 1, False

    @property
    def status(self) -> Mapping[str, Any]:
        """The contents of the worker's status file; empty before the first status."""
        try:
            return json.loads((self.folder / f"status-{self.rank}.json").read_text())
        except (OSError, ValueError):
            return {}

    @property
    def result(self) -> Mapping[str, Any]:
        """The result that the trainer writes at its end."""
        return json.loads((self.folder / f"run/worker-{self.rank}/result.json").read_text())

    def kill(self) -> None:
        """Send SIGKILL to the process and to its children, one of which trains."""
        pid = self.process.pid
        with suppress(OSError):
            below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            for one in map(int, [*below, pid]):
                os.kill(one, signal.SIGKILL)
        self.process.wait()
        self.asks.close()
        self.was_killed = True

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended by itself, not by `kill`."""
        return not self.was_killed and self.process.poll() is not None


class MeetingPlace:
    """Connects workers in a ring whenever all of them have asked.

    With MIN_WORKERS in the settings, the survivors of the present ring are enough. A replacement
    waits until the survivors ask again, and worker 0 is told that it waits.

    Attributes:
        rings: the number of rings so far.
        members: the workers in the last ring.
    """

    def __init__(self, folder: Path, size: int, *command: str, **settings: str) -> None:
        (folder / "run").mkdir(parents=True, exist_ok=True)
        self.workers = [
            Worker(rank, size, folder, list(command), **settings) for rank in range(size)
        ]
        self._least = int(settings.get("MIN_WORKERS", size))
        self.rings, self.members = 0, list(range(size))
        self._connected: dict[int, socket.socket] = {}
        self._told: list[str] = []
        self._next_sign = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._connect, daemon=True)

    def __enter__(self) -> Self:
        for worker in self.workers:
            worker.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        for worker in self.workers:
            worker.kill()

    def wait(self) -> list[int]:
        """Return all exit codes; fail with the logs if a worker does not end."""
        try:
            return [worker.process.wait(SECONDS) for worker in self.workers]
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"{error}:\n{self.logs}") from None

    def when(self, is_so: Callable[[], bool], what: str) -> None:
        """Return once a condition holds; fail with the logs if it never does."""
        until = time.monotonic() + SECONDS
        while not is_so():
            ended = [one.rank for one in self.workers if one.has_ended]
            assert not ended, f"{ended} ended before {what}:\n{self.logs}"
            assert time.monotonic() < until, f"never {what}:\n{self.logs}"
            time.sleep(PAUSE_SECONDS)

    @property
    def logs(self) -> str:
        """The output of all processes."""
        files = sorted(self.workers[0].folder.glob("log-*"))
        return "\n".join(f"--- {file.name}\n{file.read_text()}" for file in files)

    def _connect(self) -> None:
        """Answer requests until the place closes."""
        asked: dict[int, tuple[socket.socket, str]] = {}
        while not self._ended.wait(PAUSE_SECONDS):
            for worker in self.workers:
                if asked.get(worker.rank, (None,))[0] not in (None, worker.asks):
                    del asked[worker.rank]  # its process is gone
                if number := _ask_on(worker.asks):
                    asked[worker.rank] = (worker.asks, number)
            if self._may_go_on(asked):
                self.rings += 1
                self._hand_over(asked)
                asked, self._told = {}, []
            self._tell_who_waits(sorted(asked))
            self._give_signs([asks for asks, _ in asked.values()])

    def _give_signs(self, waiting: list[socket.socket]) -> None:
        """Tell the workers that wait for a ring that their entrypoints live."""
        if time.monotonic() < self._next_sign:
            return
        self._next_sign = time.monotonic() + SIGN_SECONDS
        for asks in waiting:
            with suppress(OSError):
                asks.send(json.dumps({"forming": True}).encode())

    def _living(self) -> list[int]:
        """Return the workers of the present ring that were neither lost nor replaced."""
        return [
            place
            for place, asks in self._connected.items()
            if self.workers[place].asks is asks and self.workers[place].process.poll() is None
        ]

    def _may_go_on(self, asked: Mapping[int, Any]) -> bool:
        if len(asked) == len(self.workers):
            return True
        are_back = {*self._living()} <= asked.keys()
        return bool(self.rings and are_back and 0 in asked and len(asked) >= self._least)

    def _tell_who_waits(self, asked: list[int]) -> None:
        """Tell worker 0 which workers are back, while the others are in a ring."""
        waiting = [f"worker-{place}" for place in asked if place not in self._living()]
        if waiting and waiting != self._told and 0 not in asked and 0 in self._living():
            self._told = waiting
            with suppress(OSError):
                self.workers[0].asks.send(json.dumps({"waiting": waiting}).encode())

    def _hand_over(self, asked: Mapping[int, tuple[socket.socket, str]]) -> None:
        self.members, size = sorted(asked), len(asked)
        self._connected = {place: asks for place, (asks, _) in asked.items()}
        pairs = [socket.socketpair() for _ in range(size)]  # a rank's right link is the first end
        for rank, (asks, number) in enumerate(asked[place] for place in self.members):
            answer = {"number": number, "rank": rank, "size": size, "generation": self.rings}
            if size < len(self.workers):
                answer["members"] = self.members
            left, right = pairs[rank - 1][1], pairs[rank][0]
            with suppress(OSError):
                socket.send_fds(
                    asks, [json.dumps(answer).encode()], [left.fileno(), right.fileno()]
                )
        for pair in pairs:
            for end in pair:
                end.close()


def _ask_on(asks: socket.socket) -> str | None:
    """Return the number of a request that has come, else None."""
    with suppress(OSError, ValueError), selectors.DefaultSelector() as selector:
        selector.register(asks, selectors.EVENT_READ)
        if selector.select(0) and (ask := asks.recv(LONGEST_ASK)):
            return json.loads(ask)["number"]
    return None


def steps_resumed(log: str) -> list[int]:
    """Return the steps that the fits in a log have resumed from, in order."""
    return [int(step) for step in re.findall(r"resuming from step (\d+) held by", log)]


def weights_in(output: str) -> np.ndarray:
    """Return the weights that a script has printed as JSON, on one line, at its end."""
    (line,) = [line for line in output.splitlines() if line.startswith("ENDED")]
    return np.array(json.loads(line.removeprefix("ENDED ")))
