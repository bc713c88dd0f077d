"""What `up` refuses before it starts anything: one sentence each."""

import pytest

QUICK_SECONDS = 90
IDLE = """
services:
  worker-0: {command: [python, -c, "import time; print('here', flush=True); time.sleep(600)"]}
"""


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"WORKERS": "0"}, 'WORKERS: received "0"; accepted: a number from 1 to 8'),
        ({"WORKERS": "9"}, 'WORKERS: received "9"; accepted: a number from 1 to 8'),
        ({"WORKERS": "two"}, 'WORKERS: received "two"; accepted: a number from 1 to 8'),
        ({"WORKERS": "-1"}, 'WORKERS: received "-1"; accepted: a number from 1 to 8'),
        ({"NETWORK": "wifi"}, 'NETWORK: received "wifi"; accepted: bridge or host'),
        ({"NETWORK": "host", "WORKERS": "3"}, 'WORKERS: received "3"; accepted: 1 or 2'),
        ({"RUN_NAME": "../elsewhere"}, 'RUN_NAME: received "../elsewhere"; accepted: letters'),
        ({"RUN_NAME": "latest"}, 'RUN_NAME: received "latest"; accepted: letters'),
        ({"WORKSPACE_DIR": "no/where"}, 'WORKSPACE_DIR: received "no/where"; accepted: a folder'),
        ({"DATA_DIR": "./nowhere"}, 'DATA_DIR: received "./nowhere"; accepted: a folder'),
        ({"OVERLAYS": "no.yaml"}, 'OVERLAYS: received "no.yaml"; accepted: compose files'),
        ({"GRACE_SECONDS": "soon"}, 'GRACE_SECONDS: received "soon"; accepted: a whole number'),
        ({"RUN_UID": "me"}, 'RUN_UID: received "me"; accepted: a number'),
        ({"TRAINER_EPOCH": "3"}, "TRAINER_EPOCH: no such setting"),
        ({"TRAINER_RUN_DIR": "/runs/a"}, "TRAINER_RUN_DIR: a local cluster sets it; give RUNS_DIR"),
    ],
)
def test_settings_that_make_no_cluster(start, environ, sentence):
    cluster = start(**environ)
    ended = cluster.end(QUICK_SECONDS)
    assert ended.code == 78
    assert ended.output.startswith(f"cluster-trainer: {sentence}")
    assert len(ended.output.splitlines()) == 1
    assert not list((cluster.output_file.parent / "runs").iterdir())


def test_an_image_that_is_not_there(start):
    ended = start(IMAGE="cluster-trainer:missing").end(QUICK_SECONDS)
    assert ended.code == 1
    assert "there is no image cluster-trainer:missing here" in ended.output


def test_a_second_cluster_of_the_same_project(start, workbench, tmp_path):
    project, overlay = workbench.new_name("twice"), tmp_path / "idle.yaml"
    overlay.write_text(IDLE)
    idle = {"COMPOSE_PROJECT_NAME": project, "OVERLAYS": overlay}
    first = start(WORKERS=1, **idle)
    first.wait_for_text("worker-0 | here", QUICK_SECONDS)
    second = start(WORKERS=1, **idle).end(QUICK_SECONDS)
    assert (second.code, len(second.output.splitlines())) == (78, 1)
    assert f"a cluster of the project {project} runs already" in second.output
    assert first.process.poll() is None
    first.process.terminate()
    assert first.end(60).code == 143
