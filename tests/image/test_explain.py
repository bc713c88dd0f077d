import json

import pytest

CLUSTER = {"WORKER_HOSTS": "h0:2222,h1:2222", "WORKER_INDEX": "1", "TRAINER_EPOCHS": "3"}
KEYS = {"tf_config", "task", "cluster", "command", "values"}


@pytest.fixture
def explained(run_to_end):
    def explain(environ, *arguments):
        ended = run_to_end("explain", "--json", *arguments, environment=environ)
        assert ended.code == 0, ended.err
        return json.loads(ended.out)

    return explain


def test_json_has_exactly_the_promised_keys(explained):
    found = explained(CLUSTER)
    assert set(found) == KEYS
    assert {frozenset(entry) for entry in found["values"].values()} == {
        frozenset({"value", "source"})
    }


def test_json_shows_the_cluster_as_the_command_will_see_it(explained):
    found = explained(CLUSTER)
    assert found["cluster"] == {"worker": ["h0:2222", "h1:2222"]}
    assert found["task"] == {"type": "worker", "index": 1}
    assert found["tf_config"] == {"cluster": found["cluster"], "task": found["task"]}
    assert found["values"]["TRAINER_EPOCHS"]["value"] == "3"


def test_json_has_no_tf_config_for_one_worker(explained):
    assert explained({})["tf_config"] is None


def test_command_is_the_trainer_unless_another_is_given(explained):
    assert explained({})["command"] == ["python", "-P", "-m", "trainer"]
    assert explained({}, "bash", "-c", "true")["command"] == ["bash", "-c", "true"]


def test_text_shows_where_each_value_came_from(run_to_end):
    ended = run_to_end("explain", environment=CLUSTER)
    assert ended.code == 0, ended.err
    for part in ("WORKER_HOSTS", "h0:2222,h1:2222", "TRAINER_EPOCHS", "TF_CONFIG", "trainer"):
        assert part in ended.out


@pytest.mark.parametrize("arguments", [["explain"], ["explain", "--json"]])
def test_refuses_what_a_real_start_refuses_in_the_same_words(run_to_end, arguments):
    bad = {"WORKER_HOSTS": "h0,h1", "WORKER_INDEX": "7", "TRAINER_MODEL": "nope"}
    real = run_to_end(environment=bad)
    explained = run_to_end(*arguments, environment=bad)
    assert (explained.code, explained.err) == (78, real.err)


def test_runs_nothing(run_to_end, tmp_path):
    run_to_end("explain", "touch", "/runs/touched", volumes=[f"{tmp_path}:/runs"])
    assert not list(tmp_path.iterdir())
