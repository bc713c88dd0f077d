"""Public addresses in a list cause one warning."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from entrypoint.cluster.addresses import Address, parse_address, public_warning


def addresses(*hosts: str) -> list[Address]:
    return [parse_address(host, 2222) for host in hosts]


@pytest.mark.parametrize("host", ["10.1.10.58", "100.64.0.1", "[fd00::1]", "worker-1", "localhost"])
def test_private_addresses_and_names_are_no_reason_to_warn(host: str) -> None:
    assert public_warning(addresses(host, "10.1.10.250")) is None


def test_public_addresses_are_named_and_long_lists_cut() -> None:
    warning = public_warning(addresses("10.1.10.58", *(f"9.9.9.{i}" for i in range(1, 251))))
    assert warning is not None
    assert "9.9.9.1:2222" in warning
    assert "10.1.10.58" not in warning
    assert "and 245 more" in warning
    assert "CLUSTER_TOKEN" in warning
    assert "\n" not in warning


def test_a_start_warns_once(run: Callable) -> None:
    crashing = ("sh", "-c", "exit 1")
    hosts = "8.8.8.8:2222,10.0.0.1"
    ended = run(*crashing, WORKER_HOSTS=hosts, WORKER_INDEX="0", MAX_RESTARTS="1")
    assert ended.code == 1
    (warning,) = [line for line in ended.stderr.splitlines() if "8.8.8.8:2222: " in line]
    assert " WARNING worker-0 " in warning
    assert "docs/how-to/firewall.md" in warning


def test_a_list_of_one_is_warned_of_too(run: Callable) -> None:
    # MultiWorkerMirroredStrategy opens the port for a single worker as well.
    ended = run("true", WORKER_HOSTS="8.8.8.8:2222", WORKER_INDEX="0")
    assert ended.code == 0
    assert ended.stderr.count("8.8.8.8:2222: ") == 1
