"""`up` refuses mistakes before it starts anything, with one sentence each.

tests/unit/compose/test_settings.py, test_begin.py and test_names.py cover all mistakes.
"""

import pytest

QUICK_SECONDS = 90
IDLE = """
services:
  worker-0: {command: [python, -c, "import time; print('here', flush=True); time.sleep(600)"]}
"""


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"WORKERS": "9"}, 'WORKERS: received "9"; accepted: a number from 1 to 8'),
        ({"NETWORK": "wifi"}, 'NETWORK: received "wifi"; accepted: bridge or host'),
        ({"TRAINER_EPOCH": "3"}, "TRAINER_EPOCH: no such setting"),
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
    assert f"a cluster of the project {project}" in second.output
    assert first.process.poll() is None
    first.process.terminate()
    assert first.end(60).code == 143
