"""Stands in for the entrypoints of several workers on one machine: it connects those that ask.

Everything else is real: the workers are processes, `python -m trainer` or a script, and their sums
go round a ring on sockets.
"""

import json
import os
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
    """One worker; a new process takes its place when it was killed."""

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
        """Start a process, with a socket to ask on; late, while the others train."""
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
        """What it says that it is at; empty before it says anything."""
        try:
            return json.loads((self.folder / f"status-{self.rank}.json").read_text())
        except (OSError, ValueError):
            return {}

    @property
    def result(self) -> Mapping[str, Any]:
        """What the trainer has written at its end."""
        return json.loads((self.folder / f"run/worker-{self.rank}/result.json").read_text())

    def kill(self) -> None:
        """End the process, and the one below it that trains, by SIGKILL."""
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
        """Whether its process has ended, otherwise than by `kill`."""
        return not self.was_killed and self.process.poll() is not None


class MeetingPlace:
    """Connects workers in a ring whenever all of them have asked.

    With MIN_WORKERS in the settings, those of the present ring who live are enough; who is
    started in a lost one's place waits until they ask again, and worker 0 is told so.

    Attributes:
        rings: how many there were.
        members: who was in the last one.
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
        """Return the exit codes of all; fail with the logs if one does not end."""
        try:
            return [worker.process.wait(SECONDS) for worker in self.workers]
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"{error}:\n{self.logs}") from None

    def when(self, is_so: Callable[[], bool], what: str) -> None:
        """Return once something is so; fail with the logs if it never is."""
        until = time.monotonic() + SECONDS
        while not is_so():
            ended = [one.rank for one in self.workers if one.has_ended]
            assert not ended, f"{ended} ended before {what}:\n{self.logs}"
            assert time.monotonic() < until, f"never {what}:\n{self.logs}"
            time.sleep(PAUSE_SECONDS)

    @property
    def logs(self) -> str:
        """What all processes have printed."""
        files = sorted(self.workers[0].folder.glob("log-*"))
        return "\n".join(f"--- {file.name}\n{file.read_text()}" for file in files)

    def _connect(self) -> None:
        """Answer asks, until this is over."""
        asked: dict[int, tuple[socket.socket, str]] = {}
        while not self._ended.wait(PAUSE_SECONDS):
            for worker in self.workers:
                if asked.get(worker.rank, (None,))[0] not in (None, worker.asks):
                    del asked[worker.rank]  # of a process that is gone
                if number := _ask_on(worker.asks):
                    asked[worker.rank] = (worker.asks, number)
            if self._may_go_on(asked):
                self.rings += 1
                self._hand_over(asked)
                asked, self._told = {}, []
            self._tell_who_waits(sorted(asked))
            self._give_signs([asks for asks, _ in asked.values()])

    def _give_signs(self, waiting: list[socket.socket]) -> None:
        """Tell those that wait for a ring that their entrypoints live."""
        if time.monotonic() < self._next_sign:
            return
        self._next_sign = time.monotonic() + SIGN_SECONDS
        for asks in waiting:
            with suppress(OSError):
                asks.send(json.dumps({"forming": True}).encode())

    def _living(self) -> list[int]:
        """Return those of the present ring who were not replaced, or lost."""
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
        """Tell worker 0 of those who are back, while the others are in a ring."""
        waiting = [f"worker-{place}" for place in asked if place not in self._living()]
        if waiting and waiting != self._told and 0 not in asked and 0 in self._living():
            self._told = waiting
            with suppress(OSError):
                self.workers[0].asks.send(json.dumps({"waiting": waiting}).encode())

    def _hand_over(self, asked: Mapping[int, tuple[socket.socket, str]]) -> None:
        self.members, size = sorted(asked), len(asked)
        self._connected = {place: asks for place, (asks, _) in asked.items()}
        pairs = [socket.socketpair() for _ in range(size)]  # the first ends are the ranks' right
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
    """Return the number of an ask that has come."""
    with suppress(OSError, ValueError), selectors.DefaultSelector() as selector:
        selector.register(asks, selectors.EVENT_READ)
        if selector.select(0) and (ask := asks.recv(LONGEST_ASK)):
            return json.loads(ask)["number"]
    return None


def weights_in(output: str) -> np.ndarray:
    """Return the weights that a script has printed as JSON, on one line, at its end."""
    (line,) = [line for line in output.splitlines() if line.startswith("ENDED")]
    return np.array(json.loads(line.removeprefix("ENDED ")))
