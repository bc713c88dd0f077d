"""Starts the entrypoint by forking a process that has already imported it.

Python's start and the imports take a tenth of a second of CPU time, ten times as long as a fork.
In all other respects, each start is like the image's: Python is isolated, and the process gets only
the given environment, folder and streams.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
SERVER = f"""
import json, os, runpy, socket, sys

sys.path[:0] = [{str(ROOT)!r}]
import entrypoint.__main__

asks, child = socket.socket(fileno=int(sys.argv[1])), None
while child != 0:
    text, streams, _, _ = socket.recv_fds(asks, 2**16, 3)
    if not text:
        sys.exit()
    while not text.endswith(b"\\n"):
        text += asks.recv(2**16)
    child = os.fork()
    if child:
        for stream in streams:
            os.close(stream)
        asks.sendall(b"%d\\n" % child)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        asks.sendall(b"%d\\n" % code)
asks.close()
for number, stream in enumerate(streams):
    os.dup2(stream, number)
    os.close(stream)
given = json.loads(text)
os.environ.clear()
os.environ.update(given["environ"])
os.chdir(given["folder"])
sys.argv = ["-c", *given["arguments"]]
del sys.modules["entrypoint.__main__"]
runpy.run_module("entrypoint", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True)
class Started:
    """The end of a start: its exit code, negative for a signal, and its output."""

    code: int
    stdout: str
    stderr: str


class Forked:
    """Starts the entrypoint, one start after the other; `with` ends the process that forks."""

    def __enter__(self) -> Self:
        self._asks, theirs = socket.socketpair()
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-I", "-c", SERVER, str(theirs.fileno())],
                env={"PATH": os.environ["PATH"]},
                pass_fds=[theirs.fileno()],
            )
        self._answers = self._asks.makefile()
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.close()
        self._asks.close()
        self._server.wait(60)

    def start(
        self,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        folder: Path,
        stdin: str | None,
        limit_seconds: float,
    ) -> Started:
        """Run the entrypoint to its end, and read its output until no process can write to it.

        Raises:
            TimeoutError: it did not end in time, and was killed.
        """
        pipes = [os.pipe() for _ in range(3)]
        (theirs_in, ours_in), (out, theirs_out), (err, theirs_err) = pipes
        given = {"arguments": arguments, "environ": environ, "folder": str(folder)}
        text = json.dumps(given).encode() + b"\n"
        theirs = [theirs_in, theirs_out, theirs_err]
        sent = socket.send_fds(self._asks, [text], theirs)
        self._asks.sendall(text[sent:])
        for stream in theirs:
            os.close(stream)
        process, is_late = int(self._answers.readline()), threading.Event()

        def kill() -> None:
            is_late.set()
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

        limit = threading.Timer(limit_seconds, kill)
        limit.start()
        printed = _exchanged(ours_in, (stdin or "").encode(), [out, err])
        code = int(self._answers.readline())
        limit.cancel()
        if is_late.is_set():
            raise TimeoutError(f"{arguments} did not end within {limit_seconds} s: {printed}")
        return Started(code, *printed)


def _exchanged(stdin: int, text: bytes, streams: Sequence[int]) -> list[str]:
    """Write to one stream, and read the others to their ends at the same time."""
    printed = [b""] * len(streams)

    def read(number: int, stream: int) -> None:
        with open(stream, "rb") as file:
            printed[number] = file.read()

    readers = [threading.Thread(target=read, args=pair) for pair in enumerate(streams)]
    for reader in readers:
        reader.start()
    with contextlib.suppress(BrokenPipeError), open(stdin, "wb") as file:
        file.write(text)
    for reader in readers:
        reader.join()
    return [one.decode() for one in printed]
