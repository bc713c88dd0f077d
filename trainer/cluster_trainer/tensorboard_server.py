"""`python -m cluster_trainer.tensorboard_server FOLDER`: TensorBoard on all runs below a folder.

It is the installed TensorBoard with two changes. It does not follow links: `runs/latest` would show
a run twice. And it reads event files itself, without TensorFlow, whose import takes seconds and
hundreds of megabytes. TensorBoard's faster loader, a separate program, supports neither.
"""

import argparse
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from tensorboard import default, program
from tensorboard.backend.event_processing import io_wrapper

PORT = 6006
WITHOUT_TENSORFLOW = "tensorboard.compat.notf"  # a module whose presence tells TensorBoard so
TEXTS_SHOWN = 100


def folders_below(top: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each folder with the paths of its files; links are not followed."""
    for folder, _, names in os.walk(top):
        yield folder, [os.path.join(folder, name) for name in names]  # noqa: PTH118  many, and texts


def serve(folder: Path, port: int) -> None:
    """Serve until this process is told to end.

    Args:
        folder: the folder of all runs.
        port: the port, on all interfaces of this machine or container.
    """
    sys.modules[WITHOUT_TENSORFLOW] = ModuleType(WITHOUT_TENSORFLOW)
    io_wrapper.ListRecursivelyViaWalking = folders_below
    logging.getLogger("tensorboard").setLevel(
        logging.ERROR
    )  # without a line for each run that continues
    ending = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)  # in its threads, too
    board = program.TensorBoard(plugins=default.get_plugins())
    flags = {
        "logdir": folder,
        "host": "0.0.0.0",  # noqa: S104  the container's; who reaches it is Docker's to say
        "port": port,
        "load_fast": "false",
        "samples_per_plugin": f"text={TEXTS_SHOWN}",
    }
    board.configure(["tensorboard", *(f"--{name}={value}" for name, value in flags.items())])
    board.launch()
    print(f"TensorBoard is up; it shows the runs in {folder}", flush=True)  # noqa: T201
    signal.sigwait(ending)


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(prog="tensorboard_server", description="TensorBoard on runs")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=PORT)
    given = parser.parse_args()
    serve(given.folder, given.port)


if __name__ == "__main__":
    main()
