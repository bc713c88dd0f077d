import json

# Started without its peer.
LONELY = {"RENDEZVOUS_TIMEOUT": "0"}
CLUSTER = {"WORKER_HOSTS": "h0:2222,h1:2223", "WORKER_INDEX": "1"} | LONELY
TF_CONFIG = {
    "cluster": {"worker": ["h0:2222", "h1:2223"]},
    "task": {"type": "worker", "index": 1},
}
SHOW = 'import json, os; print(json.dumps(os.environ.get("TF_CONFIG")))'


def test_a_users_command_gets_tf_config(run_python):
    assert json.loads(run_python(SHOW, environment=CLUSTER)) == TF_CONFIG


def test_a_given_tf_config_reaches_the_command(run_python):
    given = {"TF_CONFIG": json.dumps(TF_CONFIG)} | LONELY
    assert json.loads(run_python(SHOW, environment=given)) == TF_CONFIG


def test_one_worker_gets_no_tf_config(run_python):
    assert run_python(SHOW) is None


def test_a_list_of_one_still_becomes_tf_config(run_python):
    given = {"WORKER_HOSTS": "h0", "WORKER_INDEX": "0"}
    assert json.loads(run_python(SHOW, environment=given)) == {
        "cluster": {"worker": ["h0:2222"]},
        "task": {"type": "worker", "index": 0},
    }
