"""Amazon SageMaker's hosts.

RESOURCES is the example of "Distributed Training Configuration" in
https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-training-algo-running-container.html
The variables are those of ENVIRONMENT_VARIABLES.md in
https://github.com/aws/sagemaker-training-toolkit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from entrypoint.settings.environ import Environ
from entrypoint.sources.sagemaker import find
from harness.contracts import check_any, refusal, view

RESOURCES = """{
    "current_host": "algo-1",
    "hosts": ["algo-1","algo-2","algo-3"],
    "network_interface_name":"eth1"
}"""
TWO = {"SM_HOSTS": '["algo-1","algo-2"]', "SM_CURRENT_HOST": "algo-1"}


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Environ]:
    """Return a function that makes an environment, given a resourceconfig.json and variables."""

    def environ(resources: str | bytes, **texts: str) -> Environ:
        write_resources(tmp_path, resources)
        return view(tmp_path, **texts)

    return environ


def write_resources(root: Path, resources: str | bytes) -> Path:
    path = root / "opt/ml/input/config/resourceconfig.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(resources if isinstance(resources, bytes) else resources.encode())
    return path


@pytest.mark.parametrize(("current", "index"), [("algo-1", 0), ("algo-2", 1)])
def test_the_index_is_the_place_in_the_list(current: str, index: int) -> None:
    found = find(view(**(TWO | {"SM_CURRENT_HOST": current})), 2222)
    assert found.source == "SM_HOSTS"
    assert found.tf_config() == {
        "cluster": {"worker": ["algo-1:8890", "algo-2:8890"]},
        "task": {"type": "worker", "index": index},
    }


def test_the_platforms_file_says_it_without_variables(job: Callable, tmp_path: Path) -> None:
    found = find(job(RESOURCES), 2222)
    assert found.source == f"{tmp_path}/opt/ml/input/config/resourceconfig.json"
    assert found.tf_config() == {
        "cluster": {"worker": ["algo-1:8890", "algo-2:8890", "algo-3:8890"]},
        "task": {"type": "worker", "index": 0},
    }


def test_variables_win_over_the_file(job: Callable) -> None:
    assert len(find(job(RESOURCES, **TWO), 2222).spec.members) == 2
    assert len(find(job("{", **TWO), 2222).spec.members) == 2


def test_one_host_is_a_cluster_of_one() -> None:
    one = view(SM_HOSTS='["algo-1"]', SM_CURRENT_HOST="algo-1")
    assert find(one, 2222).tf_config() == {
        "cluster": {"worker": ["algo-1:8890"]},
        "task": {"type": "worker", "index": 0},
    }


def test_the_order_is_that_of_the_list() -> None:
    hosts = view(SM_HOSTS='["algo-10","algo-2"]', SM_CURRENT_HOST="algo-2")
    assert find(hosts, 2222).rank == 1


def test_worker_port_wins_if_it_is_given() -> None:
    found = find(view(**TWO, WORKER_PORT="7000"), 7000)
    assert {address.port for address in found.spec.addresses} == {7000}


def test_nothing_is_nothing(tmp_path: Path) -> None:
    assert find(view(tmp_path), 2222) is None
    assert find(view(tmp_path, TRAINING_JOB_NAME="x"), 2222) is None


@pytest.mark.parametrize(
    ("change", "name", "says"),
    [
        ({"SM_HOSTS": "algo-1,algo-2"}, "SM_HOSTS", "a JSON list"),
        ({"SM_HOSTS": ""}, "SM_HOSTS", "a JSON list"),
        ({"SM_HOSTS": "[]"}, "SM_HOSTS", "a JSON list"),
        ({"SM_HOSTS": "[1]"}, "SM_HOSTS", "a JSON list"),
        ({"SM_HOSTS": '{"algo-1":0}'}, "SM_HOSTS", "a JSON list"),
        ({"SM_HOSTS": "[" * 5000}, "SM_HOSTS", "a JSON list"),
        ({"SM_HOSTS": '["algo-1","-"]'}, "SM_HOSTS, entry 1", "host:port"),
        ({"SM_HOSTS": '["algo-1","ALGO-1"]'}, "SM_HOSTS", "each address once"),
        ({"SM_HOSTS": '["algo-1","localhost"]'}, "SM_HOSTS", "every other worker"),
        ({"SM_CURRENT_HOST": "algo-3"}, "SM_CURRENT_HOST", "one of algo-1, algo-2"),
        ({"SM_CURRENT_HOST": ""}, "SM_CURRENT_HOST", "one of algo-1, algo-2"),
    ],
)
def test_refuses_what_does_not_fit(change: dict[str, str], name: str, says: str) -> None:
    (problem,) = refusal(find, view(**(TWO | change)))
    assert problem.name == name
    assert says in problem.accepted


@pytest.mark.parametrize("missing", TWO)
def test_refuses_half_of_it(missing: str) -> None:
    some = {name: text for name, text in TWO.items() if name != missing}
    (problem,) = refusal(find, view(**some))
    assert (problem.name, problem.received) == (missing, None)


@pytest.mark.parametrize(
    ("resources", "place", "says"),
    [
        ("{", "", "a JSON object"),
        ("[]", "", "a JSON object"),
        (b"\xff\xfe", "", "UTF-8"),
        (b"a" * ((1 << 20) + 1), "", "1 MiB"),
        ('{"current_host":"algo-1"}', " hosts", "a JSON list"),
        ('{"hosts":["algo-1"]}', " current_host", "one of algo-1"),
        ('{"hosts":["algo-1"],"current_host":1}', " current_host", "one of algo-1"),
        ('{"hosts":["algo-1","a b"],"current_host":"algo-1"}', " hosts, entry 1", "host:port"),
    ],
)
def test_refuses_a_file_that_does_not_fit(
    job: Callable, tmp_path: Path, resources: str | bytes, place: str, says: str
) -> None:
    (problem,) = refusal(find, job(resources))
    assert problem.name == f"{tmp_path}/opt/ml/input/config/resourceconfig.json{place}"
    assert says in problem.accepted


def test_a_name_that_is_in_no_long_list_is_not_told_all_of_it() -> None:
    hosts = json.dumps([f"algo-{number}" for number in range(1, 100)])
    (problem,) = refusal(find, view(SM_HOSTS=hosts, SM_CURRENT_HOST="x"))
    assert problem.accepted == "one of algo-1, algo-2, algo-3, algo-4, algo-5 …"


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
LISTS = st.lists(SCALARS | st.sampled_from(["algo-1", "algo-2", "a:1"]), max_size=4)
DOCUMENTS = st.fixed_dictionaries(
    {}, optional={"hosts": LISTS | SCALARS, "current_host": SCALARS | st.just("algo-1")}
)
ONE_FOLDER = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@ONE_FOLDER
@given(DOCUMENTS.map(lambda document: json.dumps(document).encode()) | st.binary())
def test_any_file_is_resolved_or_refused(tmp_path: Path, content: bytes) -> None:
    write_resources(tmp_path, content)
    check_any(find, view(tmp_path))


@given(LISTS.map(json.dumps) | st.text(), st.text() | st.just("algo-1"))
def test_any_text_is_resolved_or_refused(hosts: str, current: str) -> None:
    check_any(find, view(SM_HOSTS=hosts, SM_CURRENT_HOST=current))


@given(st.data(), st.integers(1, 30))
def test_what_is_accepted_survives_tf_config(data: st.DataObject, count: int) -> None:
    hosts = sorted(f"algo-{number}" for number in range(1, count + 1))
    index = data.draw(st.integers(0, count - 1))
    found = check_any(find, view(SM_HOSTS=json.dumps(hosts), SM_CURRENT_HOST=hosts[index]))
    assert found.spec.to_json() == {"worker": [f"{host}:8890" for host in hosts]}
    assert found.rank == index
