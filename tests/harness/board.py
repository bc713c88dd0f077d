"""Starts TensorBoard like `make tensorboard`, and reads its answers."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from harness.cluster import PROGRAM

ANSWER_SECONDS = 10
END_SECONDS = 30


@dataclass(frozen=True)
class Board:
    """A TensorBoard in progress.

    Attributes:
        process: the process of `cluster.py tensorboard`.
        port: its port on this machine.
        output_file: the file with its output.
    """

    process: subprocess.Popen[bytes]
    port: int
    output_file: Path

    def ask(self, path: str, **query: str) -> Any:
        """Return the answer to a request to its API, or None if it does not answer yet."""
        url = f"http://127.0.0.1:{self.port}/{path}?{urlencode(query)}"
        try:
            with urlopen(url, timeout=ANSWER_SECONDS) as answer:
                return json.load(answer)
        except (URLError, ConnectionError, TimeoutError):
            return None

    def page(self) -> str:
        """Return the first page that a browser gets."""
        with urlopen(f"http://127.0.0.1:{self.port}/", timeout=ANSWER_SECONDS) as answer:
            return str(answer.read().decode())

    def output(self) -> str:
        """Return its output so far."""
        return self.output_file.read_text(errors="replace")

    def press_ctrl_c(self) -> int:
        """Send SIGINT as a terminal does, wait for the end, and return the exit code."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(END_SECONDS)


@contextmanager
def open_board(
    runs: Path, image: str, output_file: Path, environ: Mapping[str, str] = os.environ
) -> Iterator[Board]:
    """Start TensorBoard on a folder of runs, and end it.

    Args:
        runs: the folder.
        image: the name of the image.
        output_file: the file for its output.
        environ: the variables of the user's shell.
    """
    port = _free_port()
    given = {"RUNS_DIR": str(runs), "IMAGE": image, "TENSORBOARD_PORT": str(port)}
    with output_file.open("wb") as output:
        process = subprocess.Popen(
            ["env", "--default-signal=INT", *PROGRAM, "tensorboard"],
            env={**environ, **given},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    board = Board(process, port, output_file)
    try:
        yield board
    finally:
        board.press_ctrl_c()


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
