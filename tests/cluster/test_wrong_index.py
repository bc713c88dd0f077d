import pytest

WRONG_INDEX = """
services:
  worker-1:
    environment:
      WORKER_INDEX: "5"
"""


@pytest.fixture(scope="module")
def misconfigured(run, tmp_path_factory):
    overlay = tmp_path_factory.mktemp("overlay") / "wrong-index.yaml"
    overlay.write_text(WRONG_INDEX)
    return run(WORKERS=3, OVERLAYS=overlay)


def test_cluster_ends_with_the_bad_workers_code(misconfigured):
    assert misconfigured.code == 78, misconfigured.output


def test_says_who_ended_first_and_how(misconfigured):
    assert "worker-1 ended first, with exit code 78 (bad configuration)" in misconfigured.output


def test_shows_the_workers_own_message(misconfigured):
    assert 'worker-1 |   WORKER_INDEX: received "5"; accepted: 0 to 2' in misconfigured.output


def test_no_model_is_promised(misconfigured):
    assert "model.keras" not in misconfigured.output
