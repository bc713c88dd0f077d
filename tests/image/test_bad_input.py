"""Users' mistakes: one message, exit code 78, at once, and nothing starts.

Each case is a process of one container, started by the image's entrypoint.
tests/unit/entrypoint/test_start.py has more cases.
"""

import json
import re

import pytest

from harness.ended import Ended, run_and_remove

# A refusal takes half a second on a quiet machine (benchmarks/README.md), and sometimes over one
# second on a busy machine. Importing TensorFlow or waiting for a peer, which must not come first,
# takes four seconds or more. Where even a command that does nothing takes long, the limit is
# TIMES_NOTHING times its duration.
MAX_SECONDS = 2.0
TIMES_NOTHING = 3
MAX_RUNS = 4
ALL_SECONDS = 180
SECRET = "hunter2"
TWO = "h0:2222,h1:2222"
ONE_HOST = {"SM_HOSTS": '["algo-1"]', "SM_CURRENT_HOST": "algo-1"}
FOLDERS = {"TRAINER_RUN_DIR": "/tmp/run", "TRAINER_MODEL_DIR": "/tmp/model"}


def tf_config(task):
    return json.dumps({"cluster": {"worker": ["h0:2222", "h1:2222"]}, "task": task})


# name -> variables, the name in the message, parts of the line about it
BAD = {
    "index-out-of-range": (
        {"WORKER_HOSTS": TWO, "WORKER_INDEX": "2"},
        "WORKER_INDEX",
        ['received "2"', "0 to 1"],
    ),
    "index-without-hosts": ({"WORKER_INDEX": "0"}, "WORKER_INDEX", ["WORKER_HOSTS"]),
    "hosts-duplicate": (
        {"WORKER_HOSTS": "h0:1,h0:1", "WORKER_INDEX": "0"},
        "WORKER_HOSTS",
        ["h0:1"],
    ),
    "port-0": ({"WORKER_HOSTS": "h0:0,h1:1", "WORKER_INDEX": "0"}, "WORKER_HOSTS", ["1 to 65535"]),
    "tf-config-not-json": ({"TF_CONFIG": "{"}, "TF_CONFIG", ["JSON", "line 1, column 2"]),
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


# name -> command, variables
CASES = {
    **{name: ([], environ) for name, (environ, _, _) in BAD.items()},
    "four-problems": (
        [],
        {
            "WORKER_HOSTS": "h0:70000,h1:1",
            "WORKER_INDEX": "one",
            "TRAINER_MODEL": "nope",
            "TRAINER_EPOCHS": "0",
        },
    ),
    "flag": (["--epochs", "0"], {}),
    "command": (["bash", "-c", "echo started"], {"WORKER_HOSTS": TWO, "WORKER_INDEX": "9"}),
    "long-value": ([], {"WORKER_HOSTS": TWO, "WORKER_INDEX": "9" * 100_000}),
}
# name -> command, variables, the name in the message
SECRETS = {
    "variable": ([], {"TRAINER_API_KEY": SECRET}, "TRAINER_API_KEY"),
    "flag-with-value": ([f"--api-key={SECRET}"], {}, "unknown flag"),
    "flag-and-value": (["--api-key", SECRET], {}, "unknown flag"),
    "json": ([], {**ONE_HOST, "SM_HPS": f'{{"api_key": "{SECRET}"}}'}, "TRAINER_API_KEY"),
    "not-json": ([], {**ONE_HOST, "SM_HPS": f'{{"api_key": "{SECRET}",}}'}, "SM_HPS"),
    "explain": (
        ["explain"],
        {**ONE_HOST, "SM_HPS": f'{{"api_key": "{SECRET}"}}'},
        "TRAINER_API_KEY",
    ),
}
SHOWN = FOLDERS | {"FAILURE_FILE": "/dev/stderr"}  # so that the file is seen, too
# A case that takes too long runs again, because the machine may be busy.
PROGRAM = f"""
import json, os, subprocess, sys, time

entrypoint, cases = map(json.loads, sys.argv[1:])

def run(command, environ):
    begin = time.monotonic()
    environ = {{**os.environ, **environ}}
    done = subprocess.run([*entrypoint, *command], env=environ, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr, time.monotonic() - begin

def run_in_time(command, environ):
    for _ in range({MAX_RUNS}):
        ended = run(command, environ)
        if ended[-1] < {MAX_SECONDS} or ended[-1] < {TIMES_NOTHING} * run(["true"], {{}})[-1]:
            break
    else:
        sys.exit(f"it takes too long: {{command}} {{environ}} {{ended}}")
    return ended

print(json.dumps({{name: run_in_time(*case) for name, case in cases.items()}}))
"""


@pytest.fixture(scope="module")
def ended(workbench):
    """Run all cases; return the end of each, by name."""
    launcher = workbench.inspect_image().attrs["Config"]["Entrypoint"]
    entrypoint = launcher[launcher.index("--") + 1 :]
    secrets = {name: (given, SHOWN | environ) for name, (given, environ, _) in SECRETS.items()}
    container = run_and_remove(
        workbench,
        *["-c", PROGRAM, json.dumps(entrypoint), json.dumps(CASES | secrets)],
        entrypoint="python",
        user="1000:1000",
        init=True,
        network_mode="none",
        timeout_seconds=ALL_SECONDS,
    )
    assert container.code == 0, container.err
    return {name: Ended(*how) for name, how in json.loads(container.out).items()}


@pytest.fixture
def refused(ended):
    """Return a case's message, after the checks that apply to all cases."""

    def of(name, problems=1):
        assert ended[name].code == 78, ended[name]
        assert ended[name].out == ""
        assert "Traceback" not in ended[name].err
        return only_message(ended[name].err, problems)

    return of


def only_message(printed: str, problems: int) -> str:
    """Return the printed message. Only the entrypoint's one line may precede it."""
    plural = "s" if problems > 1 else ""
    title = f"cluster-trainer: {problems} problem{plural} in the configuration\n"
    before, found, message = printed.partition(title)
    assert found, printed
    assert len(before.splitlines()) <= 1, printed
    assert "in the configuration" not in message
    assert message.splitlines()[-1].startswith("Nothing was started.")
    return message


def line_about(name: str, message: str) -> str:
    """Return the message's line about a variable. The line must be complete."""
    pattern = rf'^  [^:"]*\b{name}\b[^:"]*: received .+; accepted: \S.*'
    line = re.search(pattern, message, re.MULTILINE)
    assert line, message
    return line[0]


@pytest.mark.parametrize("case", BAD)
def test_refuses(refused, case):
    _, name, parts = BAD[case]
    line = line_about(name, refused(case))
    assert not [part for part in parts if part not in line], line


def test_names_all_problems_in_one_message(refused):
    message = refused("four-problems", problems=4)
    for name in CASES["four-problems"][1]:
        line_about(name, message)


def test_flags_are_refused_like_variables(refused):
    assert 'received "0"' in line_about("TRAINER_EPOCHS", refused("flag"))


def test_a_users_command_is_not_started_either(refused):
    refused("command")


def test_a_users_command_needs_no_valid_settings_of_the_trainer(run_to_end):
    assert run_to_end("true", environment={"TRAINER_MODEL": "nope"}).code == 0


@pytest.mark.parametrize("case", SECRETS)
def test_a_secret_is_not_repeated(ended, case):
    code, output = ended[case].code, ended[case].out + ended[case].err
    assert (code, SECRET in output) == (78, False)
    assert line_about(SECRETS[case][2], output)


def test_long_values_are_shortened(refused):
    assert len(line_about("WORKER_INDEX", refused("long-value"))) < 1000
