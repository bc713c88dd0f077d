"""The gate takes the worker's own port, and checks the worker's own address."""

from __future__ import annotations

import errno
import socket

import pytest

from entrypoint.cluster.addresses import Address
from entrypoint.cluster.spec import Member, Task
from entrypoint.rendezvous.outcome import PortClosedError, PortTakenError
from entrypoint.rendezvous.port import address_warning
from entrypoint.rendezvous.transport.timing import Timing


# The last host is not the worker's address. TensorFlow's server would listen there, too.
@pytest.mark.parametrize("host", ["", "127.0.0.1", "127.0.0.9"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_port_that_is_taken_is_an_error_that_names_it_and_may_be_free_later(cluster, count, host):
    some = cluster(count)
    port = some.member(0).address.port
    with socket.create_server((host, port)):
        worker = some.start(0)
        error = worker.end()
    assert isinstance(error, PortTakenError)
    assert error.exit_code == 75
    assert f"port {port} of worker-0 is taken" in str(error)
    assert f"sport = :{port}" in str(error)
    assert worker.lines[0] == f"WARNING port {port} is taken; trying again for 0.3 s"


def test_after_a_restart_a_killed_command_has_longer_to_let_go_of_the_port():
    assert Timing.after_restarts(0) == Timing()
    assert Timing.after_restarts(1).port_seconds > 10 * Timing().port_seconds
    assert Timing.after_restarts(1).passing_seconds > 10 * Timing().passing_seconds


def test_while_commands_wait_their_workers_look_often_for_each_other():
    timing = Timing.of_commands()
    assert timing.redial_seconds <= Timing().redial_seconds / 3
    assert timing.port_seconds == Timing.after_restarts(1).port_seconds


def test_a_port_is_not_waited_for_longer_than_the_peers(cluster):
    two = cluster(2)
    port = two.member(0).address.port
    with socket.create_server(("", port)):
        worker = two.start(0, timeout_seconds=0.4, timing=Timing(port_seconds=60))
        assert isinstance(worker.end(), PortTakenError)
    assert worker.lines[0] == f"WARNING port {port} is taken; trying again for 0.4 s"


def listens_at(worker, address: str, port: int) -> bool:
    """Tell whether the worker's gate listens at this address while it waits for the others."""
    worker.wait_for("waiting for")
    with socket.socket() as dialled:
        return dialled.connect_ex((address, port)) == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.3", "localhost"])
def test_workers_of_one_machine_listen_on_its_loopback_alone(cluster, host):
    two = cluster(2)
    port = two.member(0).address.port
    spec = two.moved(worker_0=f"{host}:{port}")
    worker = two.start(0, spec=spec, timeout_seconds=1)
    own = "127.0.0.1" if host == "localhost" else host
    assert listens_at(worker, own, port)
    assert not listens_at(worker, "127.0.0.9", port)


def test_with_another_machine_in_the_list_all_interfaces_are_listened_on(cluster):
    two = cluster(2)
    port = two.member(0).address.port
    spec = two.moved(worker_1="192.0.2.1:2222")
    assert listens_at(two.start(0, spec=spec, timeout_seconds=1), "127.0.0.9", port)


def test_a_port_that_two_would_share_is_taken(cluster):
    some = cluster(1)
    with socket.socket() as shared:
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        shared.bind(("", some.member(0).address.port))
        shared.listen()
        assert isinstance(some.start(0).end(), PortTakenError)


def test_a_port_that_is_let_go_of_is_waited_for(cluster):
    two = cluster(2)
    taken = socket.create_server(("", two.member(0).address.port))
    workers = two.start_all()
    workers[0].wait_for("is taken; trying again")
    taken.close()
    assert [worker.end() for worker in workers] == [None, None]


def test_a_port_that_may_not_be_opened_is_an_error(cluster, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    two = cluster(2)
    monkeypatch.setattr(socket, "create_server", refuse)
    error = two.start(0).end()
    assert isinstance(error, PortClosedError)
    assert error.exit_code == 78
    assert "accepted: a port that may be opened. It cannot be opened: Permission denied." in (
        str(error)
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "no-such-host.invalid"])
def test_an_own_address_or_one_that_is_not_known_is_no_reason_to_warn(host):
    assert address_warning(Member(Task("worker", 1), Address(host, 2222))) is None


def test_an_address_of_another_machine_is_warned_of(cluster):
    two = cluster(2)
    spec = two.moved(worker_0=f"192.0.2.1:{two.member(0).address.port}")
    worker = two.start(0, spec=spec, timeout_seconds=0.5)
    worker.end()
    assert worker.lines[0] == (
        "WARNING worker-0's address 192.0.2.1 is not one of this machine's: fine if a router or "
        f"Docker (-p) forwards port {two.member(0).address.port}, else WORKER_INDEX or the list "
        "is wrong"
    )


def test_no_connection_outlives_the_release_at_a_workers_port(cluster):
    three = cluster(3)
    workers = three.start_all(expects_all_closed=False)
    assert [worker.end() for worker in workers] == [None] * 3
    for member in three.spec.members:
        with socket.socket() as plain:  # without SO_REUSEADDR
            plain.bind(("", member.address.port))
