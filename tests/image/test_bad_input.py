"""What a person may get wrong: one message, exit code 78, at once, and nothing starts."""

import json
import re

import pytest

# Half a second on a quiet machine (benchmarks/README.md), over one now and then on a busy one. What
# must not come before a refusal, importing TensorFlow or waiting for somebody, takes four or more.
# Where a command that does nothing takes long, too, it is so many times that.
MAX_SECONDS = 2.0
TIMES_NOTHING = 3
MAX_RUNS = 4
TWO = "h0:2222,h1:2222"
ONE_HOST = {"SM_HOSTS": '["algo-1"]', "SM_CURRENT_HOST": "algo-1"}
FOLDERS = {"TRAINER_RUN_DIR": "/tmp/run", "TRAINER_MODEL_DIR": "/tmp/model"}


def tf_config(task=None, **cluster):
    described = {"cluster": cluster or {"worker": ["h0:2222", "h1:2222"]}}
    return json.dumps(described | ({"task": task} if task else {}))


# variables, who is named in the message, a part of what it says was received or is accepted
BAD = {
    "index-out-of-range": (
        {"WORKER_HOSTS": TWO, "WORKER_INDEX": "2"},
        "WORKER_INDEX",
        ['received "2"', "0 to 1"],
    ),
    "index-negative": (
        {"WORKER_HOSTS": TWO, "WORKER_INDEX": "-1"},
        "WORKER_INDEX",
        ['received "-1"'],
    ),
    "index-not-a-number": (
        {"WORKER_HOSTS": TWO, "WORKER_INDEX": "one"},
        "WORKER_INDEX",
        ['received "one"'],
    ),
    "index-without-hosts": ({"WORKER_INDEX": "0"}, "WORKER_INDEX", ["WORKER_HOSTS"]),
    "hosts-empty": ({"WORKER_HOSTS": "", "WORKER_INDEX": "0"}, "WORKER_HOSTS", ['received ""']),
    "hosts-duplicate": (
        {"WORKER_HOSTS": "h0:1,h0:1", "WORKER_INDEX": "0"},
        "WORKER_HOSTS",
        ["h0:1"],
    ),
    "port-0": ({"WORKER_HOSTS": "h0:0,h1:1", "WORKER_INDEX": "0"}, "WORKER_HOSTS", ["1 to 65535"]),
    "port-70000": (
        {"WORKER_HOSTS": "h0:70000,h1:1", "WORKER_INDEX": "0"},
        "WORKER_HOSTS",
        ["70000", "1 to 65535"],
    ),
    "no-host": ({"WORKER_HOSTS": ":2222,h1", "WORKER_INDEX": "0"}, "WORKER_HOSTS", [":2222"]),
    "tf-config-not-json": ({"TF_CONFIG": "{"}, "TF_CONFIG", ["JSON", "line 1, column 2"]),
    "tf-config-without-task": ({"TF_CONFIG": tf_config()}, "TF_CONFIG", ["task"]),
    "tf-config-unknown-type": (
        {"TF_CONFIG": tf_config({"type": "boss", "index": 0})},
        "TF_CONFIG",
        ["boss", "worker"],
    ),
    "tf-config-two-chiefs": (
        {"TF_CONFIG": tf_config({"type": "chief", "index": 0}, chief=["h0:1", "h1:1"])},
        "TF_CONFIG",
        ["chief"],
    ),
    "tf-config-and-hosts-disagree": (
        {
            "TF_CONFIG": tf_config({"type": "worker", "index": 0}),
            "WORKER_HOSTS": "h0:2222,h7:2222",
            "WORKER_INDEX": "0",
        },
        "WORKER_HOSTS",
        ["TF_CONFIG", "h7:2222", "h1:2222"],
    ),
    "value-and-file": (
        {"WORKER_HOSTS": TWO, "WORKER_HOSTS_FILE": "/etc/hostname", "WORKER_INDEX": "0"},
        "WORKER_HOSTS",
        ["WORKER_HOSTS_FILE"],
    ),
    "trainer-value-and-file": (
        {"TRAINER_EPOCHS": "1", "TRAINER_EPOCHS_FILE": "/etc/hostname"},
        "TRAINER_EPOCHS",
        ["TRAINER_EPOCHS_FILE"],
    ),
    "unreadable-file": ({"WORKER_HOSTS_FILE": "/missing"}, "WORKER_HOSTS_FILE", ["/missing"]),
    "missing-env-file": ({"ENV_FILE": "/missing.env"}, "ENV_FILE", ["/missing.env"]),
    "unknown-source": ({"CLUSTER_SOURCE": "guess"}, "CLUSTER_SOURCE", ["guess", "tf_config"]),
    "unknown-model": (
        {"TRAINER_MODEL": "mnist_cn"},
        "TRAINER_MODEL",
        ['received "mnist_cn"', "mnist_cnn", "module:function"],
    ),
    "unknown-dataset": ({"TRAINER_DATASET": "mnits"}, "TRAINER_DATASET", ["digits", "mnist"]),
    "unknown-strategy": (
        {"TRAINER_STRATEGY": "magic"},
        "TRAINER_STRATEGY",
        ['received "magic"', "multiworker"],
    ),
    "both-batch-sizes": (
        {"TRAINER_GLOBAL_BATCH_SIZE": "128", "TRAINER_PER_REPLICA_BATCH_SIZE": "64"},
        "TRAINER_GLOBAL_BATCH_SIZE",
        ["TRAINER_PER_REPLICA_BATCH_SIZE"],
    ),
    "epochs-not-a-number": ({"TRAINER_EPOCHS": "many"}, "TRAINER_EPOCHS", ['received "many"']),
    "run-dir-not-writable": ({"TRAINER_RUN_DIR": "/usr/runs"}, "TRAINER_RUN_DIR", ["/usr/runs"]),
    "run-dir-out-of-sight": (
        {"TRAINER_RUN_DIR": "/root/all/runs"},
        "TRAINER_RUN_DIR",
        ["/root/all/runs", "1000"],
    ),
    "misspelt-variable": ({"TRAINER_EPOCH": "3"}, "TRAINER_EPOCH", ["TRAINER_EPOCHS"]),
}


@pytest.fixture
def run_in_time(run_to_end):
    """Run a container that must end at once, if need be again on a machine that is busy."""

    def run(*command, **options):
        runs = []
        for _ in range(MAX_RUNS):
            runs.append(run_to_end(*command, **options))
            if runs[-1].seconds < MAX_SECONDS or runs[-1].seconds < TIMES_NOTHING * nothing():
                return runs[-1]
        pytest.fail(f"it takes too long: {runs}")

    def nothing():
        return run_to_end("true").seconds

    return run


@pytest.fixture
def refused(run_in_time):
    """Run with bad input and return the message, after checking what holds for all of them."""

    def run(*command, problems=1, **environ):
        ended = run_in_time(*command, environment=environ, user="1000:1000")
        assert ended.code == 78, ended
        assert ended.out == ""
        assert "Traceback" not in ended.err
        return only_message(ended.err, problems)

    return run


def only_message(printed: str, problems: int) -> str:
    """Return the message that was printed; before it only the entrypoint's one line may stand."""
    plural = "s" if problems > 1 else ""
    title = f"cluster-trainer: {problems} problem{plural} in the configuration\n"
    before, found, message = printed.partition(title)
    assert found, printed
    assert len(before.splitlines()) <= 1, printed
    assert "in the configuration" not in message
    assert message.splitlines()[-1].startswith("Nothing was started.")
    return message


def line_about(name: str, message: str) -> str:
    """Return the message's line about a variable; it must say all that a line has to say."""
    pattern = rf'^  [^:"]*\b{name}\b[^:"]*: received .+; accepted: \S.*'
    line = re.search(pattern, message, re.MULTILINE)
    assert line, message
    return line[0]


@pytest.mark.parametrize(("environ", "name", "parts"), BAD.values(), ids=BAD)
def test_refuses(refused, environ, name, parts):
    line = line_about(name, refused(**environ))
    assert not [part for part in parts if part not in line], line


def test_names_all_problems_in_one_message(refused):
    message = refused(
        problems=4,
        WORKER_HOSTS="h0:70000,h1:1",
        WORKER_INDEX="one",
        TRAINER_MODEL="nope",
        TRAINER_EPOCHS="0",
    )
    for name in ("WORKER_HOSTS", "WORKER_INDEX", "TRAINER_MODEL", "TRAINER_EPOCHS"):
        line_about(name, message)


def test_flags_are_refused_like_variables(refused):
    assert 'received "0"' in line_about("TRAINER_EPOCHS", refused("--epochs", "0"))


def test_a_users_command_is_not_started_either(refused):
    refused("bash", "-c", "echo started", WORKER_HOSTS=TWO, WORKER_INDEX="9")


def test_a_users_command_needs_no_valid_settings_of_the_trainer(run_to_end):
    assert run_to_end("true", environment={"TRAINER_MODEL": "nope"}).code == 0


@pytest.mark.parametrize(
    ("command", "environ", "name"),
    [
        ((), {"TRAINER_API_KEY": "hunter2"}, "TRAINER_API_KEY"),
        (("--api-key=hunter2",), {}, "unknown flag"),
        (("--api-key", "hunter2"), {}, "unknown flag"),
        ((), {**ONE_HOST, "SM_HPS": '{"api_key": "hunter2"}'}, "TRAINER_API_KEY"),
        ((), {**ONE_HOST, "SM_HPS": '{"api_key": "hunter2",}'}, "SM_HPS"),
        (("explain",), {**ONE_HOST, "SM_HPS": '{"api_key": "hunter2"}'}, "TRAINER_API_KEY"),
    ],
)
def test_a_secret_is_not_repeated(run_to_end, command, environ, name):
    failure = {"FAILURE_FILE": "/dev/stderr"}  # so that it is seen, too
    ended = run_to_end(*command, environment=environ | FOLDERS | failure)
    assert (ended.code, "hunter2" in ended.out + ended.err) == (78, False)
    assert line_about(name, ended.err)


def test_long_values_are_shortened(refused):
    line = line_about("WORKER_INDEX", refused(WORKER_HOSTS=TWO, WORKER_INDEX="9" * 100_000))
    assert len(line) < 1000
