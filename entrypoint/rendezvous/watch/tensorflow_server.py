"""Asks the server at a port whether it is TensorFlow's, and which workers have joined.

TensorFlow's server answers while the command holds the GIL, because its threads need no Python.
Other gRPC servers, such as JAX's coordinator, do not know `tensorflow.WorkerService`. PyTorch's
store does not speak HTTP/2. This module has the part of HTTP/2 that one short call needs:
https://www.rfc-editor.org/rfc/rfc9113 (frames) and
https://www.rfc-editor.org/rfc/rfc7541#section-6.2.2 (plain headers).
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterable, Sequence

from entrypoint.cluster.spec import Task
from entrypoint.rendezvous.transport.reasons import CLOSED_AT_ONCE, PeerError
from entrypoint.rendezvous.watch import protobuf

WORKER_STATUS = "/tensorflow.WorkerService/GetStatus"
TASK_STATES = "/tensorflow.CoordinationService/GetTaskState"
"""tensorflow/core/protobuf/worker_service.proto and xla/tsl/protobuf/coordination_service.proto."""
NOT_JOINED = (1, 2)
"""TASKSTATE_UNINITIALIZED and TASKSTATE_DISCONNECTED in coordination_service.proto."""
ANSWER_SECONDS = 5.0
NOT_GRPC = "it does not speak gRPC"

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 7, 8
END_STREAM, END_HEADERS = 1, 4
CONNECTION, CALL = 0, 1
"""Numbers of streams."""
FRAME_HEAD = struct.Struct(">BHBBI")
"""The payload's length (its highest byte, then two), type, flags, stream."""
LONGEST_FRAME = 16_384
INITIAL_WINDOW_SIZE = 4
WINDOW = 2**24
"""The number of bytes that may arrive unacknowledged: more than the states of any cluster."""
MESSAGE_HEAD = struct.Struct(">BI")
"""The prefix of each gRPC message: whether it is compressed, and its length."""


async def is_tensorflow(connected: socket.socket) -> bool:
    """Whether TensorFlow's server is at the other end; closes the socket.

    Raises PeerError if it is no gRPC server, OSError if nothing answers in time.
    """
    return await _call(connected, WORKER_STATUS, b"") is not None


async def not_joined(connected: socket.socket, tasks: Iterable[Task]) -> Sequence[Task]:
    """Return which tasks have not joined the cluster that this server leads; closes the socket.

    Returns none if the server leads no cluster. Raises like `is_tensorflow`.
    """
    request = b"".join(protobuf.content(1, _named(task)) for task in tasks)
    answer = await _call(connected, TASK_STATES, request) or b""
    try:
        return _not_joined(answer)
    except (ValueError, IndexError):
        raise PeerError(NOT_GRPC) from None


def _named(task: Task) -> bytes:
    return protobuf.content(1, task.type.encode()) + protobuf.number(2, task.index)


def _not_joined(answer: bytes) -> list[Task]:
    """Return the tasks of a GetTaskStateResponse that have not joined. It omits zeros."""
    found = []
    for state in protobuf.contents(answer, 1):
        if protobuf.numbers(state).get(2) in NOT_JOINED:
            task = protobuf.contents(state, 1)[0]
            name, index = protobuf.contents(task, 1)[0], protobuf.numbers(task).get(2, 0)
            found.append(Task(name.decode(), index))
    return found


async def _call(connected: socket.socket, method: str, message: bytes) -> bytes | None:
    reader, writer = await asyncio.open_connection(sock=connected)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            # Wait for gRPC's first frame before sending: other servers might fail on a request.
            if (await _frame(reader))[0] != SETTINGS:
                raise PeerError(NOT_GRPC)
            writer.write(_request(method, message))
            return await _answer(reader)
    except asyncio.IncompleteReadError:
        raise PeerError(CLOSED_AT_ONCE) from None
    finally:
        writer.transport.abort()


async def _answer(reader: asyncio.StreamReader) -> bytes | None:
    found = b""
    while True:
        kind, flags, stream, payload = await _frame(reader)
        if kind == DATA:
            found += payload
        if kind in (RESET, GOAWAY) or (stream == CALL and flags & END_STREAM):
            return found[MESSAGE_HEAD.size :] if found else None


async def _frame(reader: asyncio.StreamReader) -> tuple[int, int, int, bytes]:
    high, low, kind, flags, stream = FRAME_HEAD.unpack(await reader.readexactly(FRAME_HEAD.size))
    length = high << 16 | low
    if length > LONGEST_FRAME:
        raise PeerError(NOT_GRPC)
    return kind, flags, stream, await reader.readexactly(length)


def _request(method: str, message: bytes) -> bytes:
    framed = MESSAGE_HEAD.pack(0, len(message)) + message
    *first, last = [framed[at : at + LONGEST_FRAME] for at in range(0, len(framed), LONGEST_FRAME)]
    return b"".join(
        (
            PREFACE,
            _framed(SETTINGS, 0, CONNECTION, struct.pack(">HI", INITIAL_WINDOW_SIZE, WINDOW)),
            _framed(WINDOW_UPDATE, 0, CONNECTION, struct.pack(">I", WINDOW)),
            _framed(HEADERS, END_HEADERS, CALL, _headers(method)),
            *(_framed(DATA, 0, CALL, part) for part in first),
            _framed(DATA, END_STREAM, CALL, last),
        )
    )


def _headers(method: str) -> bytes:
    """Return the headers of a call, in plain text; all lengths are below 127."""
    texts = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": "worker",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    return b"".join(
        bytes([0, len(name)]) + name.encode() + bytes([len(text)]) + text.encode()
        for name, text in texts.items()
    )


def _framed(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    high, low = divmod(len(payload), 1 << 16)
    return FRAME_HEAD.pack(high, low, kind, flags, stream) + payload
