"""Two hosts as SageMaker starts them: `docker run IMAGE train`, and all the rest in /opt/ml."""

import json

import pytest

from harness.ended import wait_for_end

HYPERPARAMETERS = {"epochs": "1", "steps-per-epoch": '"5"', "sagemaker_program": '"train.py"'}
LIMIT_SECONDS = 120


@pytest.fixture
def network(workbench):
    created = workbench.client.networks.create(workbench.new_name("network"), internal=True)
    yield created
    created.remove()


@pytest.fixture
def start_host(workbench, network, tmp_path):
    """Start one of the job's two hosts; its /opt/ml is a folder named after it."""
    hosts = [f"{network.name}-algo-1", f"{network.name}-algo-2"]
    started = []

    def start(number, hyperparameters):
        folder = tmp_path / f"algo-{number}"
        for name in ("input/config", "model", "output/data"):
            (folder / name).mkdir(parents=True)
        resources = {"current_host": hosts[number - 1], "hosts": hosts}
        (folder / "input/config/resourceconfig.json").write_text(json.dumps(resources))
        (folder / "input/config/hyperparameters.json").write_text(hyperparameters)
        started.append(
            workbench.start(
                "train",
                name=hosts[number - 1],
                network=network.name,
                volumes=[f"{folder}:/opt/ml"],
            )
        )
        return started[-1], folder

    yield start
    for container in started:
        container.remove(force=True, v=True)


def test_a_job_on_two_hosts_leaves_its_model_where_sagemaker_looks(start_host):
    hosts = [start_host(number, json.dumps(HYPERPARAMETERS)) for number in (2, 1)]
    for container, folder in hosts:
        ended = wait_for_end(container, LIMIT_SECONDS)
        assert ended.code == 0, ended.err
        (result,) = folder.glob("output/data/worker-*/result.json")
        assert json.loads(result.read_text())["steps"] == 5
    models = {
        folder.name: sorted(path.name for path in folder.glob("model/*")) for _, folder in hosts
    }
    assert models == {"algo-1": ["model.keras", "saved_model"], "algo-2": []}


def test_sagemaker_shows_why_a_job_failed(start_host):
    container, folder = start_host(1, '{"epoch": "1"}')
    assert wait_for_end(container, LIMIT_SECONDS).code == 78
    assert "Did you mean TRAINER_EPOCHS?" in (folder / "output/failure").read_text()[:1024]


def test_sagemaker_is_not_shown_a_secret(start_host):
    container, folder = start_host(1, '{"epochs": "1", "api_key": "hunter2"')
    ended = wait_for_end(container, LIMIT_SECONDS)
    failure = (folder / "output/failure").read_text()
    assert (ended.code, "hunter2" in ended.err + failure) == (78, False)
    assert "hyperparameters.json" in failure
    assert "line 1, column 37" in failure
