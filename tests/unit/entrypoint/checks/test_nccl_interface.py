"""A wrong NCCL_SOCKET_IFNAME is refused, and the interface to the peers is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from entrypoint.checks.nccl_interface import check_interface, interfaces, route_note, route_to
from entrypoint.errors import ConfigurationError

HOST = ["lo", "eth0", "eth1", "docker0"]
PEERS = {"worker-1": "10.1.10.250"}


def note(setting: str = "", way: str = "eth1", names: list[str] = HOST) -> str | None:
    environ = {"NCCL_SOCKET_IFNAME": setting} if setting else {}
    return route_note(environ, PEERS, names, lambda _: way)


def test_names_the_way_to_the_peers() -> None:
    said = note()
    assert said is not None
    assert said.startswith("worker-1 is reached over eth1.")
    assert "-e NCCL_SOCKET_IFNAME==eth1 selects this one" in said


@pytest.mark.parametrize("setting", ["eth1", "=eth1,eth9", "^eth0,docker,lo", "eth1:0", "eth"])
def test_a_setting_that_leads_to_the_peers_is_fine(setting: str) -> None:
    assert note(setting) is None


@pytest.mark.parametrize("setting", ["=eth0", "^lo,eth1", "docker"])
def test_says_that_a_setting_leads_elsewhere(setting: str) -> None:
    assert f"NCCL_SOCKET_IFNAME={setting} selects another" in (note(setting) or "")


@pytest.mark.parametrize(
    ("way", "names"),
    [
        ("lo", HOST),  # a peer on this machine
        ("", HOST),  # no known route: the gate has reported it
        ("eth0", ["lo", "eth0"]),  # a container's own network: there is no choice
        ("eth1", []),
    ],
)
def test_says_nothing_where_there_is_no_choice(way: str, names: list[str]) -> None:
    assert note(way=way, names=names) is None


@pytest.mark.parametrize("setting", ["=eth2", "=eth", "wlan", "^eth,lo,docker"])
def test_refuses_a_setting_that_leaves_no_interface(setting: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_interface({"NCCL_SOCKET_IFNAME": setting}, 1, lambda: HOST)
    (problem,) = caught.value.problems
    assert (problem.name, problem.received) == ("NCCL_SOCKET_IFNAME", setting)
    assert "lo, eth0, eth1, docker0" in problem.accepted


@pytest.mark.parametrize(
    ("environ", "gpus", "names"),
    [
        ({}, 1, HOST),
        ({"NCCL_SOCKET_IFNAME": "=eth0"}, 1, HOST),
        ({"NCCL_SOCKET_IFNAME": "=eth2"}, 0, HOST),  # without GPUs there is no NCCL
        ({"NCCL_SOCKET_IFNAME": "=eth2"}, 1, []),  # the kernel lists no interface
    ],
)
def test_accepts_what_leaves_one(environ: dict, gpus: int, names: list[str]) -> None:
    check_interface(environ, gpus, lambda: names)


ROUTES = """\
Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT
eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth1\t000A010A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
"""


@pytest.mark.parametrize(
    ("address", "way"),
    [("10.1.10.250", "eth1"), ("10.1.11.1", "eth0"), ("::1", ""), ("no address", "")],
)
def test_the_narrowest_route_is_the_way(tmp_path: Path, address: str, way: str) -> None:
    routes = tmp_path / "route"
    routes.write_text(ROUTES)
    assert route_to(address, routes) == way


def test_the_kernel_is_asked_for_the_interfaces() -> None:
    assert "lo" in interfaces()
    assert route_to("127.0.0.1", Path("/nowhere")) == ""
