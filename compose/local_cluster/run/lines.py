"""The lines of the workers: all of them in container.log, those for people on the screen."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from threading import Thread

from local_cluster import engine
from local_cluster.messages import complain, write

# TensorFlow's C++ notes (level I) cannot be switched off before it is up, and tell a person
# nothing; nor does its warning about the iterator that tf.distribute itself makes.
NOTES = re.compile(
    rb"^I[0-9]{4} [0-9:.]+ +[0-9]+ [a-z_]+\.cc:[0-9]+\]"
    rb"|^WARNING: All log messages before absl::Init|Input of GeneratorDatasetOp"
)
TIME_AND_LEVEL = rb"^([0-9:]{8} [A-Z]+) %s "


def shown(service: str, line: bytes) -> bytes | None:
    """Return a line as the screen shows it, the worker's name once and first; None: not at all."""
    if NOTES.search(line):
        return None
    name = service.encode()
    once = re.sub(TIME_AND_LEVEL % re.escape(name), rb"\1 ", line.rstrip(b"\n"))
    return name + b" | " + once + b"\n"


def follow(service: str, container: str, since: str, log: Path) -> Thread:
    """Show and save a container's lines, from a time on to its last, in a thread that then ends."""
    command = ["logs", "--follow", "--since", since, container]
    process = engine.start(command, output=subprocess.PIPE, errors=subprocess.STDOUT)
    thread = Thread(target=_show_and_save, args=(service, process, log))
    thread.start()
    return thread


def _show_and_save(service: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for line in engine.lines_of(process):
        _save(log, line)
        visible = shown(service, line)
        if visible is not None:
            write(sys.stdout, visible)


def _save(log: Path, line: bytes) -> None:
    try:
        with log.open("ab") as opened:
            opened.write(line)
    except OSError as error:  # a full disk, say: the run goes on, and its lines can still be seen
        complain(f"{log}: {error.strerror}")
