"""Addresses: those accepted, those refused, and their canonical spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoint.cluster.addresses import Address, AddressError, parse_address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.1.10.58:12345", "10.1.10.58:12345"),
        ("10.1.10.58", "10.1.10.58:2222"),
        ("worker-0", "worker-0:2222"),
        ("my_service:1", "my_service:1"),
        ("Node-A.Example.COM:65535", "node-a.example.com:65535"),
        ("train-0.train.default.svc.cluster.local.:2222",) * 2,
        ("[fd00::1]:12345", "[fd00::1]:12345"),
        ("[FD00:0:0::0001]", "[fd00::1]:2222"),
        ("h:02222", "h:2222"),
    ],
)
def test_accepts_address(text: str, expected: str) -> None:
    assert str(parse_address(text, 2222)) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "host is missing"),
        (":2222", "host is missing"),
        ("h:", "port"),
        ("h:0", "port"),
        ("h:70000", "port"),
        ("h:-1", "port"),
        ("h:2222x", "port"),
        ("h:٢٢٢٢", "port"),
        ("h:99999999999999999999", "port"),
        ("fd00::1", "brackets"),
        ("[fd00::1]x", "brackets"),
        ("[10.0.0.1]:1", "not an IPv6"),
        ("[fe80::1%eth0]:1", "not an IPv6"),
        ("grpc://h:1", "the scheme"),
        ("10.1.10.999:1", "neither a name"),
        ("10.1.10:1", "neither a name"),
        ("wörker:1", "neither a name"),
        ("a b:1", "neither a name"),
        ("-a:1", "neither a name"),
        ("a..b:1", "neither a name"),
        ("a\0:1", "neither a name"),
        ("\udcff:1", "neither a name"),
        ("a" * 64, "neither a name"),
        (".".join(["a"] * 128), "neither a name"),
        ("0.0.0.0:1", "one machine"),
        ("[::]:1", "one machine"),
    ],
)
def test_refuses_what_is_no_address(text: str, reason: str) -> None:
    with pytest.raises(AddressError, match=reason):
        parse_address(text, 2222)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("127.0.1.1", True),
        ("[::1]", True),
        ("[::ffff:127.0.0.1]", True),
        ("worker.localhost.", True),
        ("localhost-1", False),
        ("128.0.0.1", False),
        ("[fd00::1]", False),
    ],
)
def test_knows_loopback_addresses(host: str, expected: bool) -> None:  # noqa: FBT001
    assert parse_address(host, 1).is_loopback is expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("8.8.8.8", True),
        ("[2606:4700::1111]", True),
        ("[::ffff:8.8.8.8]", True),
        ("10.1.10.58", False),
        ("172.17.0.2", False),
        ("100.64.0.1", False),
        ("169.254.1.1", False),
        ("127.0.0.1", False),
        ("[fd00::1]", False),
        ("[::ffff:10.0.0.1]", False),
        ("[fe80::1]", False),
        ("a-name.example.com", False),
    ],
)
def test_knows_addresses_that_the_internet_reaches(host: str, expected: bool) -> None:  # noqa: FBT001
    assert parse_address(host, 1).is_public is expected


@given(st.text())
def test_any_text_is_an_address_or_refused_and_an_address_survives(text: str) -> None:
    try:
        address = parse_address(text, 2222)
    except AddressError as error:
        assert str(error).endswith(".")  # noqa: PT017 -- both outcomes are right
    else:
        assert parse_address(str(address), 1) == address


@given(st.ip_addresses(), st.integers(1, 65535))
def test_ip_addresses_survive(ip: object, port: int) -> None:
    text = str(Address(str(ip), port))
    try:
        assert str(parse_address(text, 1)) == text
    except AddressError as error:
        assert "one machine" in str(error)  # noqa: PT017 -- unspecified and multicast addresses
