"""A socket that dials its own machine can be connected with itself."""

from __future__ import annotations

import socket

import pytest

from entrypoint.rendezvous.transport.sockets import refuse_itself


def test_a_socket_that_is_connected_with_itself_counts_as_refused():
    with socket.socket() as alone:
        alone.bind(("127.0.0.1", 0))
        alone.connect(alone.getsockname())
        with pytest.raises(ConnectionRefusedError):
            refuse_itself(alone)


def test_a_socket_that_is_connected_with_another_is_fine():
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as dialled,
    ):
        refuse_itself(dialled)
