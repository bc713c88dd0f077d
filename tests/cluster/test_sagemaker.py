"""Two hosts as SageMaker starts them: `docker run IMAGE train`, with everything else in /opt/ml."""

import json
import re

import pytest

from harness.ended import run_and_remove, wait_for_end

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


# SageMaker's mounts belong to root, and the image's user is not root.
MAKE_JOB = """
import json, os, sys
from pathlib import Path
root, mode = Path("/opt/ml"), int(sys.argv[1], 8)
for name in ("input/config", "model", "output/data"):
    (root / name).mkdir(parents=True)
documents = {"resourceconfig": sys.argv[2], "hyperparameters": sys.argv[3]}
for name, text in documents.items():
    (root / f"input/config/{name}.json").write_text(text)
root.chmod(mode)
"""
ALONE = {"current_host": "algo-1", "hosts": ["algo-1"]}
IMAGES_OWN_USER = ""
ROOT = "0:0"


@pytest.fixture
def make_job(workbench):
    """Make a volume for /opt/ml in which everything belongs to root; return its name."""
    volumes = []

    def make(mode="755"):
        volumes.append(workbench.client.volumes.create(workbench.new_name("job")))
        name = volumes[-1].name
        texts = [json.dumps(ALONE), json.dumps(HYPERPARAMETERS)]
        arguments = ("python", "-c", MAKE_JOB, mode, *texts)
        made = run_and_remove(
            workbench, *arguments, entrypoint="", user=ROOT, volumes=[f"{name}:/opt/ml"]
        )
        assert made.code == 0, made.err
        return name

    yield make
    for volume in volumes:
        volume.remove()


@pytest.fixture
def image_of_root(workbench, tmp_path):
    """The image that docs/how-to/schedulers.md tells users to build."""
    (tmp_path / "Dockerfile").write_text(f"FROM {workbench.image}\nUSER root\n")
    tag = f"{workbench.new_name('image')}:root"
    image, _ = workbench.client.images.build(path=str(tmp_path), tag=tag, rm=True, forcerm=True)
    yield tag
    workbench.client.images.remove(image.id, force=True)


@pytest.mark.long  # tests/image/test_any_user.py writes as root
def test_an_image_with_user_root_trains_in_folders_of_root(workbench, make_job, image_of_root):
    volumes = [f"{make_job()}:/opt/ml"]
    job = {"image": image_of_root, "user": IMAGES_OWN_USER, "volumes": volumes}
    trained = run_and_remove(workbench, "train", timeout_seconds=LIMIT_SECONDS, **job)
    assert trained.code == 0, trained.err
    listed = run_and_remove(
        workbench, "find", "/opt/ml/model", entrypoint="", user=ROOT, volumes=volumes
    )
    assert "/opt/ml/model/model.keras\n" in listed.out


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["train"], id="trainer"),
        pytest.param(["echo", "trains"], id="own-command", marks=pytest.mark.long),
    ],
)
def test_folders_of_root_are_refused_with_what_to_do(workbench, make_job, command):
    volumes = [f"{make_job()}:/opt/ml"]
    ended = run_and_remove(workbench, *command, user=IMAGES_OWN_USER, volumes=volumes)
    assert (ended.code, ended.out) == (78, ""), ended
    for variable, folder in {"MODEL_DIR": "model", "RUN_DIR": "output/data"}.items():
        (line,) = re.findall(rf"^ +TRAINER_{variable}\b.*", ended.err, re.MULTILINE)
        for part in (f'"/opt/ml/{folder}"', "1000", "USER root"):
            assert part in line
    assert "Traceback" not in ended.err


def test_a_job_whose_files_may_not_be_read_does_not_train_alone(workbench, make_job):
    volumes = [f"{make_job(mode='700')}:/opt/ml"]
    ended = run_and_remove(workbench, "train", user=IMAGES_OWN_USER, volumes=volumes)
    assert (ended.code, ended.out) == (78, ""), ended
    for part in ("/opt/ml/input/config/resourceconfig.json", "User id 1000", "USER root"):
        assert part in ended.err
    assert "Traceback" not in ended.err


def test_folders_of_root_matter_only_where_they_are_used(workbench, make_job):
    volumes = [f"{make_job()}:/opt/ml"]
    chosen = {"SM_HP_model_dir": "/tmp/model", "TRAINER_RUN_DIR": "/tmp/run"}
    ended = run_and_remove(
        workbench, "explain", user=IMAGES_OWN_USER, volumes=volumes, environment=chosen
    )
    assert ended.code == 0, ended.err
    assert "/tmp/model" in ended.out
