"""Writes event files for TensorBoard, in its own format and with its own library.

A run that resumes repeats steps. Only a `session_log` record makes TensorBoard forget their earlier
values, and tf.summary's writer cannot write one.
"""

import logging
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
from tensorboard.plugins.histogram.summary_v2 import histogram_pb
from tensorboard.plugins.text.summary_v2 import text_pb

from cluster_trainer.files import append_whole

PATTERN = "events.out.tfevents.*"
VERSION = "brain.Event:2"
log = logging.getLogger("trainer")


class EventFile:
    """The records of one start of a run in a folder; TensorBoard calls the folder a run.

    Every record is passed to the operating system at once, so that it survives a kill. A full disk
    causes a warning and loses points, but does not end the run.

    Args:
        folder: the folder; it is created with the first record. Earlier starts may have written
            into it.
        begins_at: the step from which on records of earlier starts are invalid.
    """

    def __init__(self, folder: Path, begins_at: int) -> None:
        self._has_warned = False
        name = f"{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
        self._file = folder / PATTERN.replace("*", name)
        start = SessionLog(status=SessionLog.START)
        first = Event(file_version=VERSION), Event(step=begins_at, session_log=start)
        self._unwritten = b"".join(map(_record, first))

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Write numbers, tag -> number, in the older format: readers forget its repeated steps."""
        numbers = [Summary.Value(tag=tag, simple_value=one) for tag, one in values.items()]
        self._add(Event(step=step, summary=Summary(value=numbers)))

    def text(self, tag: str, markdown: str, step: int) -> None:
        """Write a text."""
        self._add(Event(step=step, summary=text_pb(tag, markdown)))

    def histogram(self, tag: str, values: np.ndarray, step: int) -> None:
        """Write the distribution of finite values of any shape."""
        self._add(Event(step=step, summary=histogram_pb(tag, values)))

    def _add(self, event: Event) -> None:
        """Write a record, and before the first one the records at the beginning of the file.

        Without these, TensorBoard would show repeated steps twice.
        """
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)  # it may be removed meanwhile
            # Written completely or not at all: TensorBoard stops reading at a broken record.
            append_whole(self._file, self._unwritten + _record(event))
            self._unwritten = b""
        except OSError as error:
            if not self._has_warned:
                log.warning("%s could not be written: %s; training continues", self._file, error)
            self._has_warned = True


def _record(event: Event) -> bytes:
    """Return an event as a record, with the present time."""
    event.wall_time = time.time()
    return _framed(event.SerializeToString())


def _framed(content: bytes) -> bytes:
    """Return a record in TensorFlow's format: TensorBoard's own RecordWriter costs 0.1 s to import.

    Source: https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
    """
    length = struct.pack("<Q", len(content))
    sums = [struct.pack("<I", masked_crc32c(part)) for part in (length, content)]
    return length + sums[0] + content + sums[1]


def starts_in(folder: Path) -> int:
    """Return how many starts have written into a folder."""
    return len([*folder.glob(PATTERN)])
