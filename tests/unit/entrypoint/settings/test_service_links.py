"""Variables that Kubernetes sets for a Service are ignored. Wrong settings are still refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from entrypoint.settings.environ import read_environ


def links(service: str, host: str = "10.96.0.7", shown: str = "10.96.0.7") -> dict[str, str]:
    """Return all variables that Kubernetes sets for a Service with a named port."""
    return {
        f"{service}_SERVICE_HOST": host,
        f"{service}_SERVICE_PORT": "2222",
        f"{service}_SERVICE_PORT_GRPC_FILE": "2222",
        f"{service}_PORT": f"tcp://{shown}:2222",
        f"{service}_PORT_2222_TCP": f"tcp://{shown}:2222",
        f"{service}_PORT_2222_TCP_PROTO": "tcp",
        f"{service}_PORT_2222_TCP_PORT": "2222",
        f"{service}_PORT_2222_TCP_ADDR": host,
        f"{service}_PORT_53_UDP": f"udp://{shown}:53",
    }


@pytest.mark.parametrize("service", ["TRAINER", "TRAINER_BATCH_2"])
@pytest.mark.parametrize(
    "address", [("10.96.0.7", "10.96.0.7"), ("fd00::7", "[fd00::7]")], ids=["IPv4", "IPv6"]
)
def test_no_link_with_the_trainers_prefix_reaches_the_command(
    tmp_path: Path, service: str, address: tuple[str, str]
) -> None:
    given = links(service, *address)
    found = read_environ({**given, "TRAINER_EPOCHS": "3"}, tmp_path)
    assert found.texts() == {"TRAINER_EPOCHS": "3"}
    assert found.service_links == given
    assert not found.problems


@pytest.mark.parametrize("service", ["WORKER", "METRICS"])
def test_a_link_leaves_the_setting_of_its_name_as_it_would_be(tmp_path: Path, service: str) -> None:
    given, name = links(service), f"{service}_PORT"
    (tmp_path / "port").write_text("12345")
    assert not read_environ(given, tmp_path).given(name)
    assert read_environ({**given, f"{name}_FILE": "port"}, tmp_path).get(name) == "12345"
    (tmp_path / ".env").write_text(f"{name}=1234")
    found = read_environ(given, tmp_path)
    assert (found.get(name), found.problems) == ("1234", ())
    # A user's program may look for the Service.
    assert found.texts()[f"{service}_SERVICE_HOST"] == "10.96.0.7"


@pytest.mark.parametrize(
    "given",
    [
        {"WORKER_PORT": "tcp://worker:2222"},
        {"WORKER_PORT": "http://10.96.0.7:2222"},
        {"WORKER_PORT": "tcp://10.96.0.7"},
        {"WORKER_PORT": "70000"},
        {"METRICS_PORT": "0"},
        {"METRICS_PORT": "tcp://"},
    ],
    ids=str,
)
def test_a_wrong_value_is_refused(run: Callable, given: Mapping[str, str]) -> None:
    ended = run("true", **given)
    assert ended.code == 78
    assert next(iter(given)) in ended.stderr


def test_a_start_tells_once_what_it_ignores_and_explain_shows_it(
    run: Callable, fake_python: Callable
) -> None:
    fake_python("""echo '{"problems": [], "settings": {}}'""")
    given = {"WORKER_HOSTS": "a:1,b", "WORKER_INDEX": "1"} | links("WORKER") | links("TRAINER")
    ended = run("sh", "-c", 'echo "$WORKER_PORT $TRAINER_PORT $TF_CONFIG"', **given)
    assert ended.code == 0
    assert '"b:2222"' in ended.stdout
    assert "tcp://" not in ended.stdout
    assert [line for line in ended.stderr.splitlines() if "ignored" in line and "Service" in line]
    values = json.loads(run("explain", "--json", **given).stdout)["values"]
    assert values["WORKER_PORT"]["value"] == "2222"
    assert values["TRAINER_PORT"]["value"] is None
    for name in ("WORKER_PORT", "TRAINER_PORT"):
        assert "ignored: tcp://10.96.0.7:2222" in values[name]["source"]
    assert "ignored: tcp://10.96.0.7:2222" in run("explain", **given).stdout
