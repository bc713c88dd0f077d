"""NCCL's interface and the one that leads to the peers, where they can be told from each other."""

from __future__ import annotations

import pytest

from entrypoint.checks.nccl_interface import (
    check_interface,
    interface_warning,
    own_address_towards,
    own_addresses,
)
from entrypoint.errors import ConfigurationError

PUBLIC, PRIVATE = "203.0.113.7", "10.1.10.58"
HOST = {
    "lo": ["127.0.0.1", "::1"],
    "eth0": [PUBLIC],
    "eth1": [PRIVATE],
    "docker0": ["172.17.0.1"],
    "virbr0": ["192.168.122.1"],
}
PEERS = {"worker-1": "10.1.10.250"}


def warning(setting: str = "", own: str = PRIVATE, addresses: dict = HOST) -> str | None:
    environ = {"NCCL_SOCKET_IFNAME": setting} if setting else {}
    return interface_warning(environ, PEERS, addresses, lambda _: own)


def test_warns_where_nccl_by_itself_would_take_another_interface() -> None:
    said = warning()
    assert said is not None
    assert said.startswith("worker-1 is reached over eth1, and NCCL would take eth0 (by itself)")
    assert "-e NCCL_SOCKET_IFNAME==eth1 names it" in said


def test_what_the_warning_advises_ends_it() -> None:
    assert warning("=eth1") is None


@pytest.mark.parametrize("setting", ["eth1", "=eth1,eth9", "^eth0,docker,lo,virbr", "eth1:0"])
def test_a_setting_that_leads_to_the_peers_is_fine(setting: str) -> None:
    assert warning(setting) is None


@pytest.mark.parametrize("setting", ["eth", "=eth0", "^lo,docker"])
def test_warns_of_a_setting_that_leads_elsewhere(setting: str) -> None:
    said = warning(setting)
    assert said is not None
    assert f"NCCL would take eth0 (NCCL_SOCKET_IFNAME={setting})" in said


@pytest.mark.parametrize(
    ("own", "addresses"),
    [
        (PUBLIC, HOST),  # the interface that NCCL takes
        ("127.0.0.1", HOST),  # a peer on this machine
        ("", HOST),  # no way to the peer: the gate has said so
        ("10.9.9.9", HOST),  # the address of no interface that runs
        (PRIVATE, HOST | {"ib0": ["10.2.0.1"]}),  # InfiniBand, which NCCL prefers on purpose
        ("172.18.0.2", {"lo": ["127.0.0.1"], "eth0": ["172.18.0.2"]}),  # a container of its own
        (PRIVATE, {}),
    ],
)
def test_says_nothing_where_that_is_no_mistake(own: str, addresses: dict) -> None:
    assert warning(own=own, addresses=addresses) is None


def test_docker_is_taken_where_nothing_else_is_there() -> None:
    assert (
        warning(own="172.17.0.1", addresses={"lo": ["127.0.0.1"], "docker0": ["172.17.0.1"]})
        is None
    )


@pytest.mark.parametrize("setting", ["=eth2", "=eth", "wlan", "^eth,lo,docker,virbr"])
def test_refuses_a_setting_that_leaves_no_interface(setting: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_interface({"NCCL_SOCKET_IFNAME": setting}, 1, lambda: HOST)
    assert f'NCCL_SOCKET_IFNAME: received "{setting}"; accepted:' in str(caught.value)
    assert "lo, eth0, eth1, docker0, virbr0" in str(caught.value)


@pytest.mark.parametrize(
    ("environ", "gpus", "addresses"),
    [
        ({}, 1, HOST),
        ({"NCCL_SOCKET_IFNAME": "=eth0"}, 1, HOST),
        ({"NCCL_SOCKET_IFNAME": "=eth2"}, 0, HOST),  # without GPUs there is no NCCL
        ({"NCCL_SOCKET_IFNAME": "=eth2"}, 1, {}),  # the kernel does not say
    ],
)
def test_accepts_what_leaves_one(environ: dict, gpus: int, addresses: dict) -> None:
    check_interface(environ, gpus, lambda: addresses)


def test_the_kernel_is_asked_for_the_addresses() -> None:
    assert "127.0.0.1" in own_addresses()["lo"]
    assert own_address_towards("127.0.0.1") == "127.0.0.1"
    assert own_address_towards("no address") == ""
